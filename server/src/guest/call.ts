/** The patterns of most calls to a guest. */
import { CayError } from '@cay/sdk/protocol';
import type { CborMap } from './cbor.ts';
import type { GuestConnection } from './connection.ts';
import type { CallOptions } from './guest.ts';
import type { GuestStream, StreamItem } from './stream.ts';
import { violation } from './violation.ts';

/** The connection for a call that starts now. May wait for one, until the signal is aborted. */
export type Reach = (options?: CallOptions) => GuestConnection | Promise<GuestConnection>;

export interface Request {
  op: string;
  request?: CborMap;
  options?: CallOptions | undefined;
  /** It does not count as use of the sandbox. */
  aside?: boolean | undefined;
}

/** Timeout of an answer that the guest can give at once. A hostile guest may never answer. */
const ANSWER_MS = 60_000;
/** Operations that may walk a whole tree, or wait for processes. */
const LONG = new Set(['remove', 'chmod', 'chown', 'move', 'freeze', 'thaw']);

/** One request, one message as the answer. If `parse` throws, the connection is closed. */
export async function call<T>(
  reach: Reach,
  { op, request = {}, options, aside }: Request,
  parse: (answer: CborMap) => T,
): Promise<T> {
  const connection = await reach(options);
  const stream = connection.open(op, request, {
    signal: options?.signal,
    half: true,
    ...(aside && { aside }),
  });
  return stream.check(parse, await (LONG.has(op) ? firstMessage(stream) : promptMessage(stream, op)));
}

/** The first message of an answer. Rejects `deadline_exceeded` if it does not come in time. */
export async function promptMessage(stream: GuestStream, op: string): Promise<CborMap> {
  const late = () =>
    stream.reset(
      new CayError('deadline_exceeded', `The guest has not answered "${op}" within ${ANSWER_MS} ms`),
    );
  const timer = setTimeout(late, ANSWER_MS);
  try {
    return await firstMessage(stream);
  } finally {
    clearTimeout(timer);
  }
}

async function firstMessage(stream: GuestStream): Promise<CborMap> {
  const item = await stream.read();
  return stream.check(requireMessage, item);
}

function requireMessage(item: StreamItem | undefined): CborMap {
  if (!item?.message) throw violation('an answer does not begin with a message');
  return item.message;
}

export const nothing = (): void => {};

const DONE: IteratorReturnResult<undefined> = { done: true, value: undefined };

/**
 * The items of a stream, as an iterable that can be iterated once. Closing the iterator early resets the
 * stream, also while a `next` is pending.
 *
 * With `again` it continues after its connection has ended: `open` is called once more, and the items of
 * `again` come first.
 */
export function iterate<T>(
  open: () => GuestStream | Promise<GuestStream>,
  take: (item: StreamItem) => T[],
  again?: () => T[],
): AsyncIterable<T> {
  let used = false;
  return {
    [Symbol.asyncIterator]() {
      if (used)
        throw new CayError('failed_precondition', 'Cannot read twice from the guest what it sends once');
      used = true;
      return iterator(open, take, again);
    },
  };
}

function iterator<T>(
  open: () => GuestStream | Promise<GuestStream>,
  take: (item: StreamItem) => T[],
  again: (() => T[]) | undefined,
): AsyncIterator<T> {
  let stream: GuestStream | undefined;
  let ready: T[] = [];
  let at = 0;
  let closed = false;
  return {
    async next() {
      while (!closed) {
        if (at < ready.length) return { done: false, value: ready[at++] as T };
        try {
          stream ??= await open();
          const item = closed ? undefined : await stream.read();
          if (!item) break;
          ready = stream.check(take, item);
          at = 0;
        } catch (error) {
          if (closed) break;
          if (again && stream?.interrupted) {
            stream = undefined;
            ready = again();
            at = 0;
            continue;
          }
          closed = true;
          throw error;
        }
      }
      close(stream);
      return DONE;
    },
    return() {
      close(stream);
      return Promise.resolve(DONE);
    },
  };

  function close(opened: GuestStream | undefined): void {
    closed = true;
    ready = [];
    if (opened && !opened.over) opened.reset(new CayError('cancelled', 'The reader has closed the stream'));
  }
}

/**
 * The bytes of a stream, of all channels. A guest that sends more than `most` of them violates the protocol.
 */
export function bytesOf(stream: GuestStream, most = Infinity): AsyncIterable<Uint8Array> {
  let left = most;
  return iterate<Uint8Array>(
    () => stream,
    (item) => {
      if (item.message) return [];
      left -= item.data.length;
      if (left < 0) throw violation(`more than the ${most} bytes came that were asked for`);
      return [item.data];
    },
  );
}

/**
 * Sends all of `data` and END, and resolves with the guest's answer. A failure on the guest's side rejects at
 * once, even while `data` yields nothing. `early` is given a message that comes before the answer, if one
 * does: one that has `exists`.
 */
export async function upload<T>(
  stream: GuestStream,
  data: AsyncIterable<Uint8Array> | Uint8Array,
  parse: (answer: CborMap) => T,
  early?: (message: CborMap) => void,
): Promise<T> {
  if (data instanceof Uint8Array) {
    const sending = stream.write(data);
    stream.end();
    await sending;
    return stream.check(parse, await answerAfter(stream, early));
  }
  const source = data[Symbol.asyncIterator]();
  const answer = answerAfter(stream, early);
  const sent = sendAll(stream, source);
  // The caller sees the first failure; the other must not become an unhandled rejection.
  sent.catch(nothing);
  answer.catch(nothing);
  try {
    const failed = answer.then(nothing, (error: unknown) => Promise.reject(error));
    await Promise.race([sent, failed]);
    await sent;
    return stream.check(parse, await answer);
  } catch (error) {
    if (!stream.over) stream.reset(new CayError('cancelled', 'The data to be written could not be read'));
    void Promise.resolve(source.return?.()).catch(nothing);
    throw error;
  }
}

async function answerAfter(
  stream: GuestStream,
  early: ((message: CborMap) => void) | undefined,
): Promise<CborMap> {
  const message = await firstMessage(stream);
  if (!early || !('exists' in message)) return message;
  stream.check(early, message);
  return firstMessage(stream);
}

async function sendAll(stream: GuestStream, source: AsyncIterator<Uint8Array>): Promise<void> {
  for (;;) {
    const next = await source.next();
    if (next.done) break;
    await stream.write(next.value);
  }
  stream.end();
}
