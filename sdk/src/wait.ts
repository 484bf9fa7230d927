/**
 * Waiting for a command for as long as it takes: the server answers within a minute, and is asked again.
 * The client reconnects when the connection is lost or the server restarts.
 */
import { CayError, isCayError } from './protocol/error.ts';
import type { SandboxStatus, Waited } from './protocol/index.ts';
import type { Transport } from './transport.ts';

export interface WaitOptions {
  /** Which command; the one that the sandbox was created with, if absent. */
  command?: string;
  /** For how long; for ever if absent. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** What one request asks for; the server allows no more. */
const ASK_MS = 60_000;
/** How much later than that an answer may come before the connection counts as lost. */
const SLACK_MS = 15_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;
/** For how long a server that does not answer is tried where no time was given. */
const GIVE_UP_MS = 10 * 60_000;

/**
 * `path` is the sandbox's. Rejects `unavailable` if the server cannot be asked and the time is up: whether
 * the command runs is not known then.
 */
export async function waitForCommand(
  transport: Transport,
  path: string,
  { command, timeoutMs, signal }: WaitOptions,
): Promise<Waited> {
  const until = performance.now() + (timeoutMs ?? Number.POSITIVE_INFINITY);
  let giveUp = performance.now() + GIVE_UP_MS;
  let pauseMs = FIRST_PAUSE_MS;
  let last: SandboxStatus | undefined;
  for (let asked = 0; ; asked++) {
    const askMs = Math.ceil(Math.min(ASK_MS, Math.max(0, until - performance.now())));
    try {
      const waited = await ask(
        transport,
        path,
        { command, timeoutMs: askMs, again: asked > 0, last },
        signal,
      );
      if (waited.outcome !== 'timed_out' || performance.now() >= until) return waited;
      last = waited.status;
      giveUp = performance.now() + GIVE_UP_MS;
      pauseMs = FIRST_PAUSE_MS;
    } catch (error) {
      if (
        !isCayError(error, 'unavailable') ||
        performance.now() >= (timeoutMs === undefined ? giveUp : until)
      )
        throw error;
      await pause(Math.min(pauseMs, Math.max(0, until - performance.now())), signal);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }
}

interface Asked {
  command: string | undefined;
  timeoutMs: number;
  /** The command was there when the waiting began: if it is not any more, it is lost. */
  again: boolean;
  last: SandboxStatus | undefined;
}

async function ask(
  transport: Transport,
  path: string,
  { again, last, ...query }: Asked,
  signal: AbortSignal | undefined,
): Promise<Waited> {
  const late = AbortSignal.timeout(query.timeoutMs + SLACK_MS);
  const either = signal ? AbortSignal.any([signal, late]) : late;
  try {
    return await transport.json<Waited>('GET', `${path}/wait`, { query, signal: either });
  } catch (cause) {
    if (signal?.aborted) throw new CayError('cancelled', 'The waiting was cancelled', { cause });
    if (again && isCayError(cause, 'not_found'))
      return lost(await statusOf(transport, path, either), path, last);
    if (isCayError(cause) && !late.aborted) throw cause;
    // An answer that breaks off in the middle is no error of ours.
    throw new CayError('unavailable', `The connection to ${transport.url} was lost`, { cause });
  }
}

/** `undefined` if the sandbox is gone. */
function statusOf(
  transport: Transport,
  path: string,
  signal: AbortSignal,
): Promise<SandboxStatus | undefined> {
  return transport.json<SandboxStatus>('GET', `${path}/status`, { signal }).catch((error: unknown) => {
    if (isCayError(error, 'not_found')) return undefined;
    throw error;
  });
}

function lost(now: SandboxStatus | undefined, path: string, last: SandboxStatus | undefined): Waited {
  const reason = now
    ? 'The sandbox does not know the command any more'
    : 'The sandbox was removed before the command ended';
  const end = { kind: 'lost', reason } as const;
  const unknown = {
    id: path.split('/').at(-1)!,
    uid: null,
    active: 0,
    succeeded: 0,
    failed: 0,
    reason: null,
    message: null,
  };
  return {
    outcome: 'lost',
    end,
    status: now ?? { ...unknown, ...last, phase: 'destroying', complete: true, end },
  };
}

/** Rejects `cancelled` if the signal is aborted before. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    const abort = () => {
      clearTimeout(timer);
      reject(new CayError('cancelled', 'The waiting was cancelled'));
    };
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
  });
}
