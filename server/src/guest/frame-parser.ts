/**
 * Cuts a byte stream into frames, however it was chunked.
 *
 * Payloads of control frames are put together first, which at most takes one frame's length of
 * memory, and only as much of it as has really arrived. DATA is handed on piece by piece as views
 * of the chunks, without waiting for the rest.
 *
 * A broken header throws a `violation`; the parser must not be used after that.
 */
import { Buffer } from 'node:buffer';
import { FRAME, HEADER_BYTES, MAX_LENGTH, type FrameType } from './frame.ts';
import { violation } from './violation.ts';

export interface FrameSink {
  /** A whole frame of any type but DATA. `payload` may be a view of the chunk. */
  control(type: FrameType, stream: number, payload: Buffer): void;
  /** A piece of a DATA frame, never empty. `first` is set on the first piece of each frame. */
  data(stream: number, channel: number, piece: Buffer, first: boolean): void;
}

const NOTHING: Buffer = Buffer.alloc(0);

export class FrameParser {
  readonly #sink: FrameSink;
  readonly #header = Buffer.alloc(HEADER_BYTES);
  #headerBytes = 0;
  /** Of the frame whose header was read; 0 between frames. */
  #type = 0;
  #channel = 0;
  #stream = 0;
  #left = 0;
  #first = false;
  #assembled = NOTHING;
  #assembledBytes = 0;
  /** How many frames have begun. */
  frames = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#type === 0) {
        at = this.#takeHeader(chunk, at);
        continue;
      }
      const upTo = Math.min(chunk.length, at + this.#left);
      const piece = at === 0 && upTo === chunk.length ? chunk : chunk.subarray(at, upTo);
      this.#left -= upTo - at;
      at = upTo;
      if (this.#type === FRAME.data) this.#takeData(piece);
      else this.#takeControl(piece);
    }
  }

  #takeHeader(chunk: Buffer, at: number): number {
    if (this.#headerBytes === 0 && chunk.length - at >= HEADER_BYTES) {
      this.#begin(chunk, at);
      return at + HEADER_BYTES;
    }
    const upTo = Math.min(chunk.length, at + HEADER_BYTES - this.#headerBytes);
    chunk.copy(this.#header, this.#headerBytes, at, upTo);
    this.#headerBytes += upTo - at;
    if (this.#headerBytes === HEADER_BYTES) {
      this.#headerBytes = 0;
      this.#begin(this.#header, 0);
    }
    return upTo;
  }

  #begin(bytes: Buffer, at: number): void {
    this.frames++;
    const length = bytes.readUInt32BE(at);
    const type = bytes[at + 4] as number;
    const channel = bytes[at + 5] as number;
    const stream = bytes.readUInt32BE(at + 8);
    const longest = MAX_LENGTH[type];
    if (type === 0 || longest === undefined) throw violation(`a frame has the unknown type ${type}`);
    if (length > longest)
      throw violation(`a frame of type ${type} has ${length} bytes, the most is ${longest}`);
    if (bytes[at + 6] !== 0 || bytes[at + 7] !== 0) throw violation('the filler of a frame is not zero');
    if (channel !== 0 && type !== FRAME.data) throw violation(`a frame of type ${type} has a channel`);
    const ofConnection = type === FRAME.hello || type >= FRAME.ping;
    if (ofConnection !== (stream === 0)) throw violation(`a frame of type ${type} is for stream ${stream}`);
    if (length === 0) {
      // DATA without bytes says nothing, and costs no credit: it must not cost memory either.
      if (type !== FRAME.data) this.#sink.control(type as FrameType, stream, NOTHING);
      return;
    }
    this.#type = type;
    this.#channel = channel;
    this.#stream = stream;
    this.#left = length;
    this.#first = true;
  }

  #takeData(piece: Buffer): void {
    const first = this.#first;
    this.#first = false;
    if (this.#left === 0) this.#type = 0;
    this.#sink.data(this.#stream, this.#channel, piece, first);
  }

  #takeControl(piece: Buffer): void {
    const type = this.#type as FrameType;
    if (this.#left === 0) this.#type = 0;
    if (this.#left === 0 && this.#assembledBytes === 0) return this.#sink.control(type, this.#stream, piece);
    const bytes = this.#assembledBytes + piece.length;
    if (bytes > this.#assembled.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(bytes + this.#left, bytes * 2));
      this.#assembled.copy(larger, 0, 0, this.#assembledBytes);
      this.#assembled = larger;
    }
    piece.copy(this.#assembled, this.#assembledBytes);
    this.#assembledBytes = bytes;
    if (this.#left > 0) return;
    const payload = this.#assembled.subarray(0, bytes);
    this.#assembled = NOTHING;
    this.#assembledBytes = 0;
    this.#sink.control(type, this.#stream, payload);
  }
}

/** A view of a chunk that is much larger. */
export function isSmallPart(bytes: Buffer): boolean {
  return bytes.length * 2 < bytes.buffer.byteLength;
}

/** Keeps a small view from holding on to a much larger chunk. */
export function compact(bytes: Buffer): Buffer {
  return isSmallPart(bytes) ? Buffer.from(bytes) : bytes;
}
