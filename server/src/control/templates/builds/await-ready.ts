/** Waits until the start command of a template is ready. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, ReadinessCheckSchema, type ReadinessCheck } from '@cay/sdk/protocol';
import { byteReader } from '../../../lib/byte-reader.ts';
import { loginShell, runIn, type RunIn } from './run-in.ts';

const FIRST_MS = 50;
const SLOWEST_MS = 1000;
const ANSWER_MS = 5000;

/** A check, or a command line for a login shell. */
export type Ready = ReadinessCheck | string;

export function readyText(ready: Ready): string {
  if (typeof ready === 'string') return ready;
  const [[kind, value] = []] = Object.entries(ready);
  return `${kind} ${value}`;
}

/** As it is recorded. */
export const recordedReady = (ready: Ready): string =>
  typeof ready === 'string' ? ready : JSON.stringify(ready);

export function readyOf(recorded: string): Ready {
  if (!recorded.startsWith('{')) return recorded;
  try {
    const parsed = ReadinessCheckSchema.safeParse(JSON.parse(recorded));
    return parsed.success ? parsed.data : recorded;
  } catch {
    return recorded;
  }
}

/** Asks again until it is. Rejects `deadline_exceeded`. */
export async function awaitReady(run: RunIn, ready: Ready, timeoutMs: number): Promise<void> {
  const deadline = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([run.signal, deadline]);
  try {
    for (let waitMs = FIRST_MS; ; waitMs = Math.min(waitMs * 1.5, SLOWEST_MS)) {
      if (await isReady({ ...run, signal }, ready)) return;
      await sleep(waitMs, undefined, { signal });
    }
  } catch (error) {
    if (run.signal.aborted || !deadline.aborted) throw error;
    const text = readyText(ready);
    throw new CayError(
      'deadline_exceeded',
      `"${text.slice(0, 500)}" has not succeeded for ${Math.round(timeoutMs / 1000)} s`,
      { details: { command: text.slice(0, 4096) } },
    );
  }
}

async function isReady(run: RunIn, ready: Ready): Promise<boolean> {
  if (typeof ready === 'string') return (await runIn(run, loginShell(ready))).exitCode === 0;
  if ('command' in ready) return (await runIn(run, ['/bin/sh', '-c', ready.command])).exitCode === 0;
  try {
    if ('file' in ready)
      return (await run.guest.files('root').stat(ready.file, { signal: run.signal })) !== undefined;
    if ('port' in ready) {
      await using _connection = await run.guest.ports.connect(ready.port, { signal: run.signal });
      return true;
    }
    return await answers(run, new URL(ready.http));
  } catch (error) {
    if (isCayError(error, 'not_found') || isCayError(error, 'unavailable')) return false;
    throw error;
  }
}

/** Whether a server in the sandbox answers with success or a redirect. */
async function answers({ guest, signal }: RunIn, url: URL): Promise<boolean> {
  const timeout = AbortSignal.timeout(ANSWER_MS);
  try {
    const within = AbortSignal.any([signal, timeout]);
    await using connection = await guest.ports.connect(Number(url.port || 80), { signal: within });
    const path = url.pathname + url.search;
    await connection.write(
      Buffer.from(`GET ${path} HTTP/1.0\r\nHost: ${url.host}\r\nConnection: close\r\n\r\n`),
    );
    const reader = byteReader(connection.readable);
    const status = /^HTTP\/1\.[01] ([0-9]{3})/.exec((await reader.exactly(12)).toString('latin1'))?.[1];
    return status !== undefined && Number(status) >= 200 && Number(status) < 400;
  } catch (error) {
    if (timeout.aborted && !signal.aborted) return false;
    if (isCayError(error) || signal.aborted) throw error;
    return false;
  }
}
