/** Goes on after a lost connection, such as when the server is restarted. Commands run on meanwhile. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/client';
import { errorColour, note } from './output.ts';

/** How long a server may be away. */
const GIVE_UP_MS = 60_000;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2000;

/** A failure that may pass: the connection, or a server that starts. */
export function isLostConnection(error: unknown): boolean {
  return isCayError(error, 'unavailable');
}

export interface ReattachOptions {
  /** What was lost, for the message: `the connection to command cmd_1`. */
  what: string;
  signal?: AbortSignal;
  giveUpMs?: number;
}

/** Tries until it succeeds. Rejects with the last failure after a minute, and with any other at once. */
export async function reattach<T>(
  connect: () => Promise<T>,
  { what, signal, giveUpMs = GIVE_UP_MS }: ReattachOptions,
): Promise<T> {
  const begun = performance.now();
  note(errorColour.yellow(`lost ${what}; connecting again…`));
  for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    if (signal?.aborted) throw new CayError('cancelled', `Gave up on ${what}`);
    try {
      const connected = await connect();
      note(errorColour.dim('connected again'));
      return connected;
    } catch (error) {
      if (!isLostConnection(error) || performance.now() - begun + wait > giveUpMs) throw error;
    }
    await sleep(wait, undefined, { signal }).catch(() => {});
  }
}
