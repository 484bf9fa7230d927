/**
 * The API as the fault suite calls it. There are three outcomes: done, refused (nothing happened, by the
 * word of the server), and unknown (the connection ended, or the server failed halfway).
 */
export type Outcome<T> = { done: T } | { refused: string; message: string } | { unknown: string };

export interface CallOptions {
  body?: unknown;
  /** Sent as it is. */
  raw?: string;
  idempotencyKey?: string;
}

export interface Client {
  call<T>(method: string, path: string, options?: CallOptions): Promise<Outcome<T>>;
  text(path: string): Promise<Outcome<string>>;
}

/** By these the server says that it has done nothing. */
const REFUSALS = new Set([
  'invalid_argument',
  'not_found',
  'already_exists',
  'conflict',
  'failed_precondition',
  'resource_exhausted',
  'unsupported',
]);
/** A busy machine is slow; what takes longer than this hangs. */
const CALL_MS = 240_000;

export function openClient(url: string, key: string): Client {
  async function request(
    method: string,
    path: string,
    { body, raw, idempotencyKey }: CallOptions,
  ): Promise<Outcome<string>> {
    try {
      const answer = await fetch(`${url}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${key}`,
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(raw !== undefined && { body: raw }),
        signal: AbortSignal.timeout(CALL_MS),
      });
      const text = await answer.text();
      if (answer.ok) return { done: text };
      const { error } = JSON.parse(text) as { error: { code: string; message: string } };
      if (REFUSALS.has(error.code)) return { refused: error.code, message: error.message };
      return { unknown: `${error.code}: ${error.message}` };
    } catch (error) {
      return { unknown: String((error as Error).cause ?? error) };
    }
  }
  return {
    async call<T>(method: string, path: string, options: CallOptions = {}) {
      const outcome = await request(method, path, options);
      return 'done' in outcome
        ? { done: (outcome.done === '' ? undefined : JSON.parse(outcome.done)) as T }
        : outcome;
    },
    text: (path) => request('GET', path, {}),
  };
}
