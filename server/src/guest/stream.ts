/**
 * One stream on a connection to a guest: messages and data in both directions, each with credit.
 *
 * Received items are queued until `read` takes them. The guest is granted more credit when the next read
 * shows that the last item was handled, so a stream holds at most its initial credit and one frame. Items
 * that arrived before a failure can still be read; then `read` rejects.
 */
import { CayError } from '@cay/sdk/protocol';
import type { Buffer } from 'node:buffer';
import { decodeCborMap, encodeCbor, type CborMap } from './cbor.ts';
import { FRAME, INITIAL_CREDIT, MAX_DATA_BYTES, MAX_PAYLOAD_BYTES, STRICT_CREDIT } from './frame.ts';
import { MESSAGE, ReceiveQueue, type Received } from './receive-queue.ts';
import { violation } from './violation.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';

/** What a stream needs of its connection. */
export interface StreamHost {
  /** Why the connection has ended; absent while it lives. */
  readonly error: CayError | undefined;
  /** True while more DATA should wait for the transport to drain. */
  readonly congested: boolean;
  send(type: number, stream: number, payload?: Uint8Array, channel?: number): void;
  /** Calls `wake` once after the transport has drained. */
  onceDrained(wake: () => void): void;
  /** The stream is over: later frames for it are ignored. */
  forget(stream: number): void;
  /** True if this stream may have a larger window, until it is over. */
  mayWiden(stream: number): boolean;
  /** A stream became long-lived, so the connection may be idle now. */
  onStreamChange(): void;
  fail(error: CayError): void;
}

export type StreamItem = { message: CborMap } | { message?: undefined; channel: number; data: Buffer };

export interface StreamOptions {
  signal?: AbortSignal;
  /** Bytes taken before the guest is granted them again. */
  grantEvery?: number;
  /**
   * The stream was opened by the guest, which decides how many there are: it begins with less credit, which
   * may not be overdrawn, and gets more when its bytes are taken fast.
   */
  strict?: boolean;
  /** Only one reader has its bytes, and each of them once: it may give them back. */
  lends?: boolean;
}

interface Waiter<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

const GRANT_EVERY = 65_536;
const STRICT_GRANT_EVERY = 16_384;
/** Each grant wakes the guest, which is dear under gVisor. */
const WIDE_GRANT_EVERY = 262_144;
/** A strict stream that has carried this much may have this much more credit. */
const WIDE_AFTER = 262_144;
const WIDE_CREDIT = 983_040;

export class GuestStream {
  readonly id: number;
  readonly lends: boolean;
  #longLived = false;
  /**
   * Called with its bytes when an item arrived without a pending read, with 0 at the end and for a failure.
   */
  onArrival: ((bytes: number) => void) | undefined;
  /** Asked before a strict stream gets more credit than it began with. Absent: it may have it. */
  mayWiden: (() => boolean) | undefined;

  readonly #host: StreamHost;
  readonly #queue: ReceiveQueue;
  #grantEvery: number;
  readonly #strict: boolean;
  #carried = 0;
  readonly #signal: AbortSignal | undefined;
  #reader: Waiter<StreamItem | undefined> | undefined;
  /** Bytes that the guest may still send, and bytes that were read but not granted again yet. */
  #allowance: number;
  #taken = 0;
  /** Bytes that we may still send. */
  #credit = INITIAL_CREDIT;
  #roomWaiters: Waiter<void>[] = [];
  /** Resolves, and never rejects, when all queued writes are sent; absent when none is queued. */
  #sending: Promise<void> | undefined;
  #weEnded = false;
  #theyEnded = false;
  /** We have sent a RESET. */
  #resetByUs = false;
  #failure: CayError | undefined;

  constructor(host: StreamHost, id: number, options: StreamOptions = {}) {
    this.#host = host;
    this.id = id;
    this.lends = options.lends ?? false;
    this.#queue = new ReceiveQueue(this.lends);
    this.#strict = options.strict ?? false;
    this.#allowance = this.#strict ? STRICT_CREDIT : INITIAL_CREDIT;
    this.#grantEvery = this.#strict
      ? STRICT_GRANT_EVERY
      : Math.min(options.grantEvery ?? GRANT_EVERY, GRANT_EVERY);
    this.#signal = options.signal;
    this.#signal?.addEventListener('abort', this.#aborted, { once: true });
  }

  /** True if the stream failed because its connection was lost. */
  get interrupted(): boolean {
    return this.#failure !== undefined && this.#failure === this.#host.error;
  }

  get longLived(): boolean {
    return this.#longLived;
  }

  /**
   * Marks a stream that may stay open for ever: a command's output, a watch, a connection to a port. A
   * connection with long-lived streams only counts as idle, so quiescing does not wait for them.
   */
  markLongLived(): void {
    this.#longLived = true;
    this.#host.onStreamChange();
  }

  get failure(): CayError | undefined {
    return this.#failure;
  }

  /** True if neither side sends any more. */
  get over(): boolean {
    return this.#failure !== undefined || (this.#weEnded && this.#theyEnded);
  }

  /** The next item, or undefined after the guest's END. Only one read may wait at a time. */
  read(): Promise<StreamItem | undefined> {
    this.grantTaken();
    const entry = this.#queue.shift();
    if (entry) {
      const item = this.#decode(entry);
      return item ? Promise.resolve(item) : Promise.reject(this.#failure);
    }
    if (this.#theyEnded && !this.#resetByUs) return Promise.resolve(undefined);
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#reader = { resolve, reject };
    });
  }

  /** The next item if it has arrived already. */
  takeNow(): StreamItem | undefined {
    const entry = this.#queue.shift();
    return entry && this.#decode(entry);
  }

  /** True if the next item is a message. */
  get messageIsNext(): boolean {
    return this.#queue.next === MESSAGE;
  }

  /** True if the guest has sent END. */
  get hasEnded(): boolean {
    return this.#theyEnded;
  }

  /** Grants what `takeNow` has taken, when enough has come together. */
  grantTaken(): void {
    if (this.#taken >= this.#grantEvery && !this.over && !this.#theyEnded) this.#grant();
  }

  /** Closes the connection: what the guest sent is against the protocol. */
  break(error: CayError): void {
    this.#host.fail(error);
  }

  /** Bytes that have arrived and were not read yet. */
  get queuedBytes(): number {
    return this.#queue.bytes;
  }

  /** True if every received item was read. */
  get drained(): boolean {
    return this.#queue.next === undefined;
  }

  /** Validates something that the guest sent. If `parse` throws, the connection is closed. */
  check<In, Out>(parse: (value: In) => Out, value: In): Out {
    try {
      return parse(value);
    } catch (cause) {
      const error = cause instanceof CayError ? cause : violation(String(cause));
      this.#host.fail(error);
      throw error;
    }
  }

  /** Returns `undefined` if all bytes were sent at once. The caller must not change them afterwards. */
  write(data: Uint8Array, channel = 0): Promise<void> | undefined {
    const problem = this.#cannotSend();
    if (problem) return Promise.reject(problem);
    const sent = this.#sending ? 0 : this.#sendData(data, channel, 0);
    if (sent === data.length) return undefined;
    return this.#inTurn(async () => {
      for (let at = sent; at < data.length; at = this.#sendData(data, channel, at)) await this.room();
    });
  }

  send(message: CborMap): Promise<void> | undefined {
    const problem = this.#cannotSend();
    if (problem) return Promise.reject(problem);
    let payload: Buffer;
    try {
      payload = encodeCbor(message, MAX_PAYLOAD_BYTES);
    } catch (error) {
      return Promise.reject(error as CayError);
    }
    const work = () => {
      this.#credit -= payload.length;
      this.#host.send(FRAME.message, this.id, payload);
    };
    if (!this.#sending && this.#credit > 0) {
      work();
      return undefined;
    }
    return this.#inTurn(async () => {
      await this.room();
      work();
    });
  }

  /** Resolves when a frame may be sent; rejects when the stream is over. */
  async room(): Promise<void> {
    for (;;) {
      const problem = this.#failure ?? (this.over ? ended() : undefined);
      if (problem) throw problem;
      if (this.#credit > 0 && !this.#host.congested) return;
      await new Promise<void>((resolve, reject) => {
        this.#roomWaiters.push({ resolve, reject });
        if (this.#credit > 0) this.#host.onceDrained(this.#wakeSenders);
      });
    }
  }

  /** Sends END, after all queued writes. */
  end(): void {
    if (this.#weEnded || this.#failure) return;
    if (this.#sending) {
      inBackground(
        this.#sending.then(() => this.end()),
        ignoreFailure,
      );
      return;
    }
    this.#weEnded = true;
    this.#host.send(FRAME.end, this.id);
    this.#closeIfOver();
  }

  /** Ends both directions with RESET. Items that were not read are dropped. */
  reset(error: CayError): void {
    this.#queue.clear();
    if (this.over) return;
    this.#resetByUs = true;
    this.#host.send(
      FRAME.reset,
      this.id,
      encodeCbor({ code: error.code, message: error.message.slice(0, 1024) }),
    );
    this.fail(error);
  }

  // Called by the connection.

  /** False if the memory of the bytes is not needed any more. */
  arrived(channel: number, bytes: Buffer, first: boolean): boolean {
    if (this.#theyEnded) throw violation(`a frame came after END on stream ${this.id}`);
    if (first && this.#allowance <= 0) throw violation(`credit was overdrawn on stream ${this.id}`);
    this.#allowance -= bytes.length;
    if (this.#strict && this.#allowance < 0) throw violation(`credit was overdrawn on stream ${this.id}`);
    const reader = this.#reader;
    if (!reader) {
      const kept = this.#queue.push(channel, bytes);
      this.onArrival?.(bytes.length);
      return kept;
    }
    const item = this.#decode({ channel, bytes });
    if (!item) return true;
    this.#reader = undefined;
    reader.resolve(item);
    return true;
  }

  credited(bytes: number): void {
    this.#credit = Math.min(this.#credit + bytes, Number.MAX_SAFE_INTEGER);
    this.#wakeSenders();
  }

  peerEnded(): void {
    if (this.#theyEnded) throw violation(`END came twice on stream ${this.id}`);
    this.#theyEnded = true;
    this.#reader?.resolve(undefined);
    this.#reader = undefined;
    this.#closeIfOver();
    this.onArrival?.(0);
  }

  fail(error: CayError): void {
    if (this.over) return;
    this.#failure = error;
    this.#reader?.reject(error);
    this.#reader = undefined;
    this.#close();
    this.onArrival?.(0);
  }

  #decode(entry: Received): StreamItem | undefined {
    this.#taken += entry.bytes.length;
    if (entry.channel !== MESSAGE) return { channel: entry.channel, data: entry.bytes };
    try {
      return { message: decodeCborMap(entry.bytes) };
    } catch (error) {
      this.#host.fail(error as CayError);
      this.#failure ??= error as CayError;
      return undefined;
    }
  }

  #grant(): void {
    const bytes = this.#taken + this.#widening();
    this.#taken = 0;
    this.#allowance += bytes;
    const payload = new Uint8Array(4);
    new DataView(payload.buffer).setUint32(0, bytes);
    this.#host.send(FRAME.credit, this.id, payload);
  }

  /** Credit beyond what was taken, once, for a stream that carries much. */
  #widening(): number {
    if (!this.#strict || this.#carried >= WIDE_AFTER) return 0;
    this.#carried += this.#taken;
    if (this.#carried < WIDE_AFTER || this.mayWiden?.() === false || !this.#host.mayWiden(this.id)) return 0;
    this.#grantEvery = WIDE_GRANT_EVERY;
    return WIDE_CREDIT;
  }

  #cannotSend(): CayError | undefined {
    return this.#failure ?? (this.#weEnded ? ended() : undefined);
  }

  #sendData(data: Uint8Array, channel: number, from: number): number {
    let at = from;
    while (at < data.length && this.#credit > 0 && !this.#host.congested) {
      const piece = data.subarray(at, at + MAX_DATA_BYTES);
      this.#credit -= piece.length;
      this.#host.send(FRAME.data, this.id, piece, channel);
      at += piece.length;
    }
    return at;
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const done = this.#sending ? this.#sending.then(work) : work();
    const settled = done.then(
      () => {},
      () => {},
    );
    this.#sending = settled;
    const forgotten = settled.then(() => {
      if (this.#sending === settled) this.#sending = undefined;
    });
    inBackground(forgotten, ignoreFailure);
    return done;
  }

  readonly #wakeSenders = (): void => {
    if (this.#roomWaiters.length === 0) return;
    const waiters = this.#roomWaiters;
    this.#roomWaiters = [];
    for (const waiter of waiters) waiter.resolve();
  };

  readonly #aborted = (): void => this.reset(cancelled(this.#signal));

  #closeIfOver(): void {
    if (this.over) this.#close();
  }

  #close(): void {
    this.#signal?.removeEventListener('abort', this.#aborted);
    this.#wakeSenders();
    this.#host.forget(this.id);
  }
}

function ended(): CayError {
  return new CayError('failed_precondition', 'Cannot write: the stream to the guest has ended');
}

/** The error of a call whose signal was aborted: `deadline_exceeded` for a timeout, otherwise `cancelled`. */
export function cancelled(signal: AbortSignal | undefined): CayError {
  const cause: unknown = signal?.reason;
  if (cause instanceof CayError) return cause;
  if (cause instanceof DOMException && cause.name === 'TimeoutError') {
    return new CayError('deadline_exceeded', 'The call to the guest timed out', { cause });
  }
  return new CayError('cancelled', 'The call to the guest was cancelled', { cause });
}
