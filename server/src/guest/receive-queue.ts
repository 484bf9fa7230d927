/**
 * Items that have arrived on a stream and were not read yet, in order.
 *
 * Memory is about what was counted against the credit, however small the pieces are: pieces that are small
 * compared to their chunk are copied, neighbours on one channel are joined, and when there are many, small
 * ones are packed into one buffer. A piece of one byte in a buffer of its own would take a hundred times as
 * much.
 */
import { Buffer } from 'node:buffer';
import { lentCopy } from '../lib/lent-memory.ts';
import { compact, isSmallPart } from './frame-parser.ts';

/** In place of a channel: the payload of a MESSAGE. */
export const MESSAGE = -1;

export interface Received {
  channel: number;
  bytes: Buffer;
}

const SMALL = 2048;
const PACK_CAPACITY = 16 * 1024;
/** With more entries than this, small ones are packed. */
const PACK_AFTER = 16;
/** A piece in a pack is one number: its length times this, and its channel plus one. */
const CHANNELS = 257;

/** Small pieces side by side in one buffer. */
class Pack {
  readonly #bytes = Buffer.allocUnsafeSlow(PACK_CAPACITY);
  readonly #pieces: number[] = [];
  #end = 0;
  #at = 0;
  #next = 0;

  /** False if there is no room for it. */
  add(channel: number, bytes: Buffer): boolean {
    if (this.#end + bytes.length > PACK_CAPACITY) return false;
    bytes.copy(this.#bytes, this.#end);
    this.#end += bytes.length;
    const last = this.#pieces.length - 1;
    const joins = channel !== MESSAGE && last >= this.#next && this.#pieces[last]! % CHANNELS === channel + 1;
    if (joins) this.#pieces[last]! += bytes.length * CHANNELS;
    else this.#pieces.push(bytes.length * CHANNELS + channel + 1);
    return true;
  }

  get channel(): number {
    return (this.#pieces[this.#next]! % CHANNELS) - 1;
  }

  take(): Received {
    const { channel } = this;
    const length = Math.floor(this.#pieces[this.#next++]! / CHANNELS);
    this.#at += length;
    return { channel, bytes: this.#bytes.subarray(this.#at - length, this.#at) };
  }

  get empty(): boolean {
    return this.#next === this.#pieces.length;
  }
}

export class ReceiveQueue {
  readonly #lends: boolean;
  #entries: (Received | Pack | undefined)[] = [];
  #head = 0;
  #bytes = 0;

  /** With `lends` whoever takes a piece gives its memory back, so that copies are lent as well. */
  constructor(lends = false) {
    this.#lends = lends;
  }

  /** Of all items in it. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The channel of the next item, if there is one. */
  get next(): number | undefined {
    return this.#entries[this.#head]?.channel;
  }

  /** False if it has a copy, so that the memory of the bytes is not needed any more. */
  push(channel: number, bytes: Buffer): boolean {
    this.#bytes += bytes.length;
    const last = this.#entries.at(-1);
    if (bytes.length >= SMALL || this.#entries.length - this.#head <= PACK_AFTER) {
      const lent = this.#lends && channel !== MESSAGE && isSmallPart(bytes);
      const kept = lent ? lentCopy(bytes) : compact(bytes);
      this.#entries.push({ channel, bytes: kept });
      return kept === bytes;
    }
    if (last instanceof Pack && last.add(channel, bytes)) return false;
    const pack = new Pack();
    pack.add(channel, bytes);
    this.#entries.push(pack);
    return false;
  }

  shift(): Received | undefined {
    const entry = this.#entries[this.#head];
    if (!entry) return undefined;
    const received = entry instanceof Pack ? entry.take() : entry;
    this.#bytes -= received.bytes.length;
    if (entry instanceof Pack && !entry.empty) return received;
    this.#entries[this.#head++] = undefined;
    if (this.#head === this.#entries.length) this.clear();
    else if (this.#head >= 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    return received;
  }

  clear(): void {
    if (this.#entries.length > 0) this.#entries = [];
    this.#head = 0;
    this.#bytes = 0;
  }
}
