/**
 * The streams that the guest opens: which operations it may ask for, and how many at once.
 *
 * A guest of ours stays below every bound here by itself. One that does not is not ours any more, and its
 * connection is cut, except for connections that come too fast: programs make them, and each is refused.
 */
import { decodeCborMap, type CborMap } from './cbor.ts';
import { CayError } from '@cay/sdk/protocol';
import { Allowance } from '../lib/allowance.ts';
import type { Buffer } from 'node:buffer';
import type { GuestStream } from './stream.ts';
import { violation } from './violation.ts';

/** Takes over a stream that the guest has opened. A throw closes the connection. */
export type StreamHandler = (request: CborMap, stream: GuestStream) => void;

/** What serves each operation, by its name. */
export type StreamHandlers = Readonly<Record<string, StreamHandler>>;

/** At once. The guest's own bounds are 2,048 carried connections and 512 lookups. */
export const MAX_STREAMS_OF_GUEST = 4_096;
/** The guest sends at most 2,000 lookups at once and 500 in each further second. */
const LOOKUPS = { burst: 4_000, perSecond: 1_000 };
const OTHERS = { burst: 4_096, perSecond: 2_000 };

export class StreamsOfGuest {
  readonly #handlers: StreamHandlers;
  readonly #lookups = new Allowance(LOOKUPS);
  readonly #others = new Allowance(OTHERS);
  #last = 0;
  #open = 0;

  constructor(handlers: StreamHandlers = {}) {
    this.#handlers = handlers;
  }

  /** Checks an OPEN, and hands a stream that `make` makes to its handler. */
  open(id: number, payload: Buffer, make: () => GuestStream): void {
    // Numbers must ascend, so one is enough to detect a reuse.
    if (id % 2 !== 0 || id <= this.#last) throw violation(`the guest opened stream ${id}`);
    this.#last = id;
    const request = decodeCborMap(payload);
    const op = request['op'];
    if (typeof op !== 'string' || op.length > 64) throw violation('a stream was opened without an operation');
    if (this.#open >= MAX_STREAMS_OF_GUEST)
      throw violation(`the guest has more than ${MAX_STREAMS_OF_GUEST} streams open`);
    this.#open++;
    const stream = make();
    const handler = Object.hasOwn(this.#handlers, op) ? this.#handlers[op] : undefined;
    if (!handler)
      return stream.reset(new CayError('unsupported', 'The server has no such operation for guests'));
    if (op === 'lookup') {
      if (!this.#lookups.take()) throw violation('the guest looks up too many names');
    } else if (!this.#others.take()) {
      return stream.reset(new CayError('resource_exhausted', 'The sandbox opens connections too fast'));
    }
    handler(request, stream);
  }

  /** A stream is over. */
  closed(id: number): void {
    if (id % 2 === 0) this.#open--;
  }
}
