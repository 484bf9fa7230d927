/**
 * What has arrived on a stream and was not taken yet, in order.
 *
 * Pieces that are small beside the chunk they came in are copied, and neighbours on one channel
 * are joined, so that what is held is about what was counted against the credit.
 */
import { Buffer } from 'node:buffer';
import { compact } from './frame-parser.ts';

/** In place of a channel: the payload of a MESSAGE. */
export const MESSAGE = -1;

export interface Received {
  channel: number;
  bytes: Buffer;
}

const JOIN_BELOW = 2048;
const JOIN_CAPACITY = 16 * 1024;

export class ReceiveQueue {
  #entries: (Received | undefined)[] = [];
  #head = 0;
  /** The buffer that the last entry was copied into, if more can follow there. */
  #joint: Buffer | undefined;
  #jointBytes = 0;

  get head(): Received | undefined {
    return this.#entries[this.#head];
  }

  push(channel: number, bytes: Buffer): void {
    const last = this.#entries.at(-1);
    if (bytes.length >= JOIN_BELOW || channel === MESSAGE) {
      this.#joint = undefined;
      this.#entries.push({ channel, bytes: compact(bytes) });
    } else if (last?.channel === channel && this.#joint && this.#jointBytes + bytes.length <= this.#joint.length) {
      this.#append(last, bytes, this.#joint);
    } else if (last?.channel === channel && last.bytes.length < JOIN_BELOW) {
      const joint = Buffer.allocUnsafeSlow(JOIN_CAPACITY);
      last.bytes.copy(joint);
      this.#joint = joint;
      this.#jointBytes = last.bytes.length;
      this.#append(last, bytes, joint);
    } else {
      this.#joint = undefined;
      this.#entries.push({ channel, bytes: compact(bytes) });
    }
  }

  #append(last: Received, bytes: Buffer, joint: Buffer): void {
    bytes.copy(joint, this.#jointBytes);
    this.#jointBytes += bytes.length;
    last.bytes = joint.subarray(0, this.#jointBytes);
  }

  shift(): Received | undefined {
    const entry = this.#entries[this.#head];
    if (!entry) return undefined;
    this.#entries[this.#head++] = undefined;
    if (this.#head === this.#entries.length) this.clear();
    else if (this.#head >= 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    return entry;
  }

  clear(): void {
    if (this.#entries.length > 0) this.#entries = [];
    this.#head = 0;
    this.#joint = undefined;
  }
}
