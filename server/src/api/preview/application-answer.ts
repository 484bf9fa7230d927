/** Reads the answer of an application. Everything in it may be hostile. */
import { validateHeaderValue, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';

/** Interim answers (1xx) that are skipped before the final one. */
const MOST_INTERIM = 16;

export type Answered =
  | { kind: 'response'; answer: IncomingMessage }
  | { kind: 'upgrade'; answer: IncomingMessage; inner: Duplex; head: Buffer };

/**
 * Resolves with the first final answer. Rejects `unavailable` if the application closes the connection,
 * breaks HTTP, sends too many interim answers or a status that cannot be forwarded, and `deadline_exceeded`
 * if it does not answer in time.
 */
export function answerOf(
  upstream: ClientRequest,
  { timeoutMs, upgrade }: { timeoutMs: number; upgrade: boolean },
): Promise<Answered> {
  return new Promise<Answered>((resolve, reject) => {
    let interim = 0;
    let over = false;
    const end = (settle: () => void) => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      settle();
    };
    const failWith = (error: CayError) =>
      end(() => {
        reject(error);
        upstream.destroy();
      });
    const fail = (why: string, cause?: unknown) => failWith(noAnswer(why, cause));
    const timer = setTimeout(() => {
      const message = `The application in the sandbox did not answer within ${timeoutMs / 1000} s`;
      failWith(new CayError('deadline_exceeded', message, { details: { timeoutMs } }));
    }, timeoutMs);
    upstream.on('information', () => {
      if (++interim > MOST_INTERIM) fail(`more than ${MOST_INTERIM} interim answers`);
    });
    upstream.on('response', (answer) => {
      const problem = problemOf(answer);
      if (problem === undefined) return end(() => resolve({ kind: 'response', answer }));
      // The body of a refused answer is not read.
      answer.on('error', () => {}).destroy();
      fail(problem);
    });
    upstream.on('upgrade', (answer, inner, head) => {
      if (upgrade && !over) return end(() => resolve({ kind: 'upgrade', answer, inner, head }));
      inner.destroy();
      fail('it switched protocols unasked');
    });
    upstream.on('error', (error) => fail('it broke off or does not speak HTTP', error));
    upstream.on('close', () => fail('it closed the connection'));
  });
}

function noAnswer(why: string, cause: unknown): CayError {
  return new CayError('unavailable', `The application in the sandbox gave no valid answer: ${why}`, {
    cause,
    details: { badAnswer: true },
  });
}

/** Whether the application's answer was invalid, in contrast to a port that nothing listens on. */
export function isBadAnswer(error: unknown): error is CayError {
  return error instanceof CayError && error.details['badAnswer'] === true;
}

/** Why an answer is not forwarded; undefined if it is. */
function problemOf({ statusCode = 0, headers }: IncomingMessage): string | undefined {
  if (!(statusCode >= 200 && statusCode <= 599)) return `its status is ${statusCode}`;
  try {
    for (const [name, value] of Object.entries(headers))
      for (const each of [value].flat()) validateHeaderValue(name, each ?? '');
  } catch {
    return 'a header has characters that none may have';
  }
  return undefined;
}
