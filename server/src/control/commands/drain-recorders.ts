import { setTimeout as sleep } from 'node:timers/promises';
import type { CommandInfo, SandboxId } from '@cay/sdk/protocol';
import type { ConnectGuest } from './ask-guest.ts';
import type { Recorder } from './recorder.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

/**
 * Bounds how long a stop waits for output. Output that is not recorded by then is lost with the processes.
 */
export const DRAIN_MS = 1_000;
const POLL_MS = 10;

/**
 * Waits until the recorders have all output that the guest has. Asks until two answers are the same, because
 * output may still be in a command's pipe at the first. Returns early if the guest does not answer.
 */
export async function drainRecorders(
  connect: ConnectGuest,
  sandbox: SandboxId,
  recorders: ReadonlyMap<string, Recorder>,
): Promise<void> {
  using hurrying = new DisposableStack();
  for (const recorder of recorders.values()) hurrying.use(recorder.hurry());
  const over = new AbortController();
  const late = sleep(DRAIN_MS, undefined, { signal: over.signal }).catch(() => {});
  const finished = new Set<string>();
  for (const [id, recorder] of recorders)
    inBackground(
      recorder.done.finally(() => finished.add(id)),
      ignoreFailure,
    );

  async function drained(): Promise<void> {
    const guest = await connect(sandbox);
    for (let before = -1; !over.signal.aborted; await sleep(POLL_MS)) {
      const commands = (await guest.commands()).filter(({ id }) => recorders.has(id));
      const written = commands.reduce((sum, { outputBytes }) => sum + outputBytes, 0);
      if (written === before && commands.every(isRecorded)) return;
      before = written;
    }
  }

  function isRecorded({ id, outputBytes, end }: CommandInfo): boolean {
    return finished.has(id) || (end === undefined && recorders.get(id)!.end >= outputBytes);
  }

  await Promise.race([drained().catch(() => {}), late]);
  over.abort();
}
