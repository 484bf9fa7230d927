/**
 * A connection to a guest: many streams over one byte stream.
 *
 * It exists only after both sides have said hello. A violation of the protocol closes it, and every stream on
 * it fails with `unavailable`.
 */
import { CayError } from '@cay/sdk/protocol';
import { Buffer } from 'node:buffer';
import type { Duplex } from 'node:stream';
import { decodeCborMap, encodeCbor, type CborMap } from './cbor.ts';
import { FRAME, MAX_PAYLOAD_BYTES, MAX_STREAM, PROTOCOL, type FrameType } from './frame.ts';
import { FrameParser, type FrameSink } from './frame-parser.ts';
import { frameWriter, type FrameWriter } from './frame-writer.ts';
import { parseHello, parseReset, type GuestHello } from './parse.ts';
import { MESSAGE } from './receive-queue.ts';
import { egressStreams, type EgressOfGuest } from './egress-streams.ts';
import { GuestStream, cancelled, type StreamHost, type StreamOptions } from './stream.ts';
import { lend } from '../lib/lent-memory.ts';
import { StreamsOfGuest } from './streams-of-guest.ts';
import { violation } from './violation.ts';

/** What the server tells the guest in its hello. */
export interface ServerHello {
  sandbox: string;
  incarnation: number;
  /** Memory limit that the guest enforces, where the kernel cannot. */
  memoryLimit?: number | null;
  /** Limit on the processes of one user, where the kernel does not enforce it. */
  pidsLimit?: number | null;
  /** Limit on open files of a command's processes, where the runtime cannot set it. */
  openFilesLimit?: number | null;
  hostname?: string;
}

export interface ConnectOptions extends ServerHello {
  /** Timeout of the guest's hello. Default 10,000. */
  helloTimeoutMs?: number;
  signal?: AbortSignal;
  /** What serves the lookups and connections of programs inside. Absent: egress is off. */
  egress?: EgressOfGuest | undefined;
}

/** The rate is checked after so many frames, and limited to so many in a millisecond on average. */
const PACE_FRAMES = 1024;
const FRAMES_PER_MS = 50;
/** Timeout of the guest's answer to HANGUP. */
const HANGUP_MS = 5_000;
/** Streams of the guest that may have a large window at once. */
const MAX_WIDE = 32;

export class GuestConnection implements StreamHost, FrameSink {
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>;
  /** Called before each frame is sent. `isAside`: the request does not count as use of the sandbox. */
  beforeSend: ((isAside: boolean) => void) | undefined;

  readonly #transport: Duplex;
  readonly #writer: FrameWriter;
  readonly #parser = new FrameParser(this);
  readonly #streams = new Map<number, GuestStream>();
  readonly #pings = new Map<number, { resolve(): void; reject(error: unknown): void }>();
  readonly #idleWaiters = new Set<() => void>();
  #nextStream = 1;
  #nextPing = 1;
  #pacedAt = performance.now();
  /**
   * Of the chunk that is being parsed: bytes of streams that lend, and whether others may keep a part of it.
   */
  #lentBytes = 0;
  #kept = false;
  readonly #ofGuest: StreamsOfGuest;
  readonly #wide = new Set<number>();
  #hello: GuestHello | undefined;
  #error: CayError | undefined;
  #isAside = false;
  #resolveClosed!: () => void;
  #greeted: ((hello: GuestHello) => void) | undefined;

  private constructor(transport: Duplex, egress: EgressOfGuest | undefined) {
    this.#transport = transport;
    this.#ofGuest = new StreamsOfGuest(egress && egressStreams(egress));
    this.closed = new Promise((resolve) => {
      this.#resolveClosed = resolve;
    });
    this.#writer = frameWriter(transport, () =>
      this.fail(violation('the guest does not read what it is sent')),
    );
    transport.on('error', (cause) => this.fail(lost('the connection failed', cause)));
    transport.on('end', () => this.fail(lost('the guest hung up')));
    transport.on('close', () => this.fail(lost('the guest hung up')));
    transport.on('data', this.#received);
  }

  /** Resolves when both sides have said hello. When it rejects the transport is destroyed. */
  static async connect(transport: Duplex, options: ConnectOptions): Promise<GuestConnection> {
    const {
      helloTimeoutMs = 10_000,
      signal,
      sandbox,
      incarnation,
      memoryLimit,
      pidsLimit,
      openFilesLimit,
      hostname,
      egress,
    } = options;
    const connection = new GuestConnection(transport, egress);
    const expired = () =>
      connection.fail(
        new CayError(
          'unavailable',
          `The guest of sandbox "${sandbox}" did not say hello within ${helloTimeoutMs} ms`,
        ),
      );
    const aborted = () => connection.fail(cancelled(signal));
    const timer = setTimeout(expired, helloTimeoutMs);
    signal?.addEventListener('abort', aborted, { once: true });
    try {
      if (signal?.aborted) aborted();
      const greeted = new Promise<GuestHello>((resolve) => {
        connection.#greeted = resolve;
      });
      await Promise.race([greeted, connection.closed]);
      if (connection.#error) throw connection.#error;
      const hello = {
        protocol: PROTOCOL,
        sandbox,
        incarnation,
        memoryLimit,
        pidsLimit,
        openFilesLimit,
        hostname,
        egress: egress ? true : undefined,
      };
      connection.send(FRAME.hello, 0, encodeCbor(hello));
      return connection;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', aborted);
    }
  }

  get hello(): GuestHello {
    return this.#hello as GuestHello; // set before `connect` resolves
  }

  /** Why the connection ended; absent while it lives. */
  get error(): CayError | undefined {
    return this.#error;
  }

  /** How many streams are open. */
  get streams(): number {
    return this.#streams.size;
  }

  /**
   * Opens a stream. `half` sends END at once: the request is all that we send. With `aside` it does not count
   * as use of the sandbox.
   */
  open(
    op: string,
    request: CborMap,
    options: StreamOptions & { half?: boolean; aside?: boolean } = {},
  ): GuestStream {
    if (options.signal?.aborted) throw cancelled(options.signal);
    if (this.#error) throw this.#error;
    const payload = encodeCbor({ op, ...request }, MAX_PAYLOAD_BYTES);
    if (this.#nextStream > MAX_STREAM) {
      this.fail(lost('all stream numbers are used up'));
      throw this.#error;
    }
    const stream = new GuestStream(this, this.#nextStream, options);
    this.#nextStream += 2;
    this.#streams.set(stream.id, stream);
    this.#isAside = options.aside === true;
    this.send(FRAME.open, stream.id, payload);
    if (options.half) stream.end();
    this.#isAside = false;
    return stream;
  }

  /** Resolves when the guest has answered. */
  ping(): Promise<void> {
    if (this.#error) return Promise.reject(this.#error);
    const number = this.#nextPing++;
    const payload = Buffer.alloc(4);
    payload.writeUInt32BE(number >>> 0);
    return new Promise((resolve, reject) => {
      this.#pings.set(number >>> 0, { resolve, reject });
      this.send(FRAME.ping, 0, payload);
    });
  }

  /** Resolves true when only long-lived streams are open, and false after the timeout. */
  whenIdle(timeoutMs: number): Promise<boolean> {
    if (!this.#busy()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const done = (isIdle: boolean) => {
        this.#idleWaiters.delete(onIdle);
        clearTimeout(timer);
        resolve(isIdle);
      };
      const onIdle = () => done(true);
      const timer = setTimeout(() => done(false), timeoutMs);
      this.#idleWaiters.add(onIdle);
    });
  }

  /**
   * Asks the guest to close the connection and to dial again after that time; resolves when it has closed.
   */
  async hangup(dialAfterMs: number): Promise<void> {
    if (this.#error) return;
    this.send(FRAME.hangup, 0, encodeCbor({ dialAfterMs }));
    const timer = setTimeout(
      () => this.fail(lost(`the guest did not hang up within ${HANGUP_MS} ms`)),
      HANGUP_MS,
    );
    await this.closed;
    clearTimeout(timer);
  }

  close(reason = 'the server closed the connection'): void {
    this.#writer.flush();
    this.fail(lost(reason));
  }

  fail(error: CayError): void {
    if (this.#error) return;
    this.#error = error;
    this.#transport.destroy();
    // First, so that an error below cannot delay the next connection.
    this.#resolveClosed();
    for (const stream of [...this.#streams.values()]) stream.fail(error);
    this.#streams.clear();
    for (const ping of this.#pings.values()) ping.reject(error);
    this.#pings.clear();
    this.onStreamChange();
  }

  get congested(): boolean {
    return this.#writer.congested;
  }

  send(type: number, stream: number, payload?: Uint8Array, channel?: number): void {
    if (this.#error) return;
    this.beforeSend?.(this.#isAside);
    this.#writer.send(type, stream, payload, channel);
  }

  onceDrained(wake: () => void): void {
    this.#writer.onceDrained(wake);
  }

  forget(stream: number): void {
    if (this.#streams.delete(stream)) this.#ofGuest.closed(stream);
    this.#wide.delete(stream);
    this.onStreamChange();
  }

  mayWiden(stream: number): boolean {
    if (this.#wide.size >= MAX_WIDE) return false;
    this.#wide.add(stream);
    return true;
  }

  onStreamChange(): void {
    if (this.#idleWaiters.size === 0 || this.#busy()) return;
    for (const onIdle of [...this.#idleWaiters]) onIdle();
  }

  #busy(): boolean {
    for (const stream of this.#streams.values()) if (!stream.longLived) return true;
    return false;
  }

  readonly #received = (chunk: Buffer): void => {
    if (this.#error) return;
    this.#lentBytes = 0;
    this.#kept = false;
    try {
      this.#parser.push(chunk);
      if (!this.#kept) lend(chunk, this.#lentBytes);
    } catch (error) {
      this.fail(error instanceof CayError ? error : lost('a frame could not be handled', error));
    }
    if (this.#parser.frames >= PACE_FRAMES) this.#pace();
  };

  /** Stops reading for a while if the guest sends so many frames that parsing them would delay other work. */
  #pace(): void {
    const frames = this.#parser.frames;
    this.#parser.frames = 0;
    const now = performance.now();
    const waitMs = this.#pacedAt + frames / FRAMES_PER_MS - now;
    this.#pacedAt = now;
    if (waitMs <= 0 || this.#error) return;
    this.#pacedAt += waitMs;
    this.#transport.pause();
    setTimeout(() => this.#transport.resume(), waitMs);
  }

  data(id: number, channel: number, piece: Buffer, first: boolean): void {
    if (!this.#hello) throw violation('the guest did not say hello first');
    const stream = this.#streams.get(id);
    if (!stream?.arrived(channel, piece, first)) return;
    if (stream.lends) this.#lentBytes += piece.length;
    else this.#kept = true;
  }

  control(type: FrameType, id: number, payload: Buffer): void {
    if (type === FRAME.hello) return this.#greet(payload);
    if (!this.#hello) throw violation('the guest did not say hello first');
    const stream = this.#streams.get(id);
    switch (type) {
      case FRAME.message:
        this.#kept = true;
        stream?.arrived(MESSAGE, payload, true);
        return;
      case FRAME.credit:
        if (payload.length !== 4) throw violation(`a CREDIT frame has ${payload.length} bytes instead of 4`);
        return stream?.credited(payload.readUInt32BE(0));
      case FRAME.end:
        return stream?.peerEnded();
      case FRAME.reset:
        return stream?.fail(parseReset(decodeCborMap(payload)));
      case FRAME.open:
        this.#kept = true;
        return this.#opened(id, payload);
      case FRAME.ping:
        return this.send(FRAME.pong, 0, Buffer.from(payload));
      case FRAME.pong:
        return this.#ponged(payload);
      default:
        throw violation(`the guest sent a frame of type ${type}, which only the server sends`);
    }
  }

  #greet(payload: Buffer): void {
    if (this.#hello) throw violation('the guest said hello twice');
    this.#hello = parseHello(decodeCborMap(payload));
    this.#greeted?.(this.#hello);
  }

  #opened(id: number, payload: Buffer): void {
    this.#ofGuest.open(id, payload, () => {
      const stream = new GuestStream(this, id, { strict: true, lends: true });
      this.#streams.set(id, stream);
      return stream;
    });
  }

  #ponged(payload: Buffer): void {
    if (payload.length !== 4) return;
    const number = payload.readUInt32BE(0);
    this.#pings.get(number)?.resolve();
    this.#pings.delete(number);
  }
}

function lost(why: string, cause?: unknown): CayError {
  return new CayError('unavailable', `The connection to the guest is lost: ${why}`, { cause });
}
