import { setTimeout as sleep } from 'node:timers/promises';
import type { CommandInfo, SandboxId } from '@cay/sdk/protocol';
import type { Backend } from '../../backends/backend.ts';
import type { Recorder } from './recorder.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';

/**
 * What cannot be taken by then is lost with the processes: whoever ends a sandbox does not wait for a flood.
 */
export const DRAIN_MS = 1_000;
const LOOK_EVERY_MS = 10;

/**
 * Waits until recorders have all that the guest has of their commands, and nothing more comes: what a command
 * has written may still be in its pipe when the guest is asked. A guest that does not answer is left as it
 * is.
 */
export async function drainRecorders(
  backend: Pick<Backend, 'connect'>,
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
    const guest = await backend.connect(sandbox);
    for (let before = -1; !over.signal.aborted; await sleep(LOOK_EVERY_MS)) {
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
