/**
 * Gives the memory of large buffers back at once, rather than when the garbage collector finds them.
 *
 * V8 collects all of its heap after every 64 MB of buffers. A server that passes a gigabyte on would do that
 * thirty times, which takes three times as long as reading and writing the bytes.
 *
 * The one rule: the code that gives bytes back must be the last to use them. A buffer whose memory is gone
 * has no bytes.
 */
import { Buffer } from 'node:buffer';

/** Smaller ones are not worth it, and may be slices of a pool. */
const LARGE = 4 * 1024;

/** Bytes of each lent buffer that were not given back yet. */
const lent = new WeakMap<ArrayBuffer, number>();

/**
 * Promises that `parts` bytes of `whole` are all that anybody still uses of it, and that those who do give
 * them back. Parts that are never given back leave the buffer to the garbage collector.
 */
export function lend(whole: Uint8Array, parts = whole.length): void {
  const memory = wholeOf(whole);
  if (memory && parts > 0) lent.set(memory, parts);
}

/** The part of a lent buffer is not used any more. Anything else is left alone. */
export function giveBack(part: Uint8Array): void {
  const memory = part.buffer as ArrayBuffer;
  const left = lent.get(memory);
  if (left === undefined) return;
  if (left > part.length) {
    lent.set(memory, left - part.length);
    return;
  }
  lent.delete(memory);
  free(memory);
}

/**
 * Whoever hands bytes on, and calls their writer back before they are used, takes them out of the lending:
 * the garbage collector frees their buffer.
 */
export function keep(part: Uint8Array): void {
  lent.delete(part.buffer as ArrayBuffer);
}

/** The memory of a buffer that has all of it. */
function wholeOf(bytes: Uint8Array): ArrayBuffer | undefined {
  const { buffer, length } = bytes;
  return length >= LARGE && length === buffer.byteLength && buffer instanceof ArrayBuffer
    ? buffer
    : undefined;
}

/** Memory that is moved into a buffer of no bytes is freed. */
function free(memory: ArrayBuffer): void {
  if (!memory.detached) memory.transfer(0);
}

/** A copy. One that is worth it has memory of its own, which is lent already. */
export function lentCopy(bytes: Uint8Array): Buffer {
  if (bytes.length < LARGE) return Buffer.from(bytes);
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  copy.set(bytes);
  lend(copy);
  return copy;
}
