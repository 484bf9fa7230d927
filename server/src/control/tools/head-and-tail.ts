import { Buffer } from 'node:buffer';
import { HEAD_SHARE } from './limits.ts';

/**
 * Keeps the head and the tail of an output of any length in bounded memory.
 *
 *     const kept = new HeadAndTail(30_000);
 *     for await (const chunk of output) kept.add(chunk);
 *     kept.text('/tmp/all.log')  // head, "[… 12345 bytes omitted …]", tail
 */
export class HeadAndTail {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  readonly #head: Buffer[] = [];
  #headLength = 0;
  #tail: Buffer[] = [];
  #tailLength = 0;
  /** Bytes that were added. */
  bytes = 0;

  constructor(mostBytes: number) {
    this.#headBytes = Math.floor(mostBytes * HEAD_SHARE);
    this.#tailBytes = mostBytes - this.#headBytes;
  }

  add(data: Uint8Array): void {
    this.bytes += data.length;
    let rest = Buffer.from(data.buffer, data.byteOffset, data.length);
    if (this.#headLength < this.#headBytes) {
      const taken = Buffer.from(rest.subarray(0, this.#headBytes - this.#headLength));
      this.#head.push(taken);
      this.#headLength += taken.length;
      rest = rest.subarray(taken.length);
    }
    if (rest.length === 0) return;
    this.#tail.push(Buffer.from(rest.subarray(-this.#tailBytes)));
    this.#tailLength += Math.min(rest.length, this.#tailBytes);
    if (this.#tailLength > 2 * this.#tailBytes + 65_536 || this.#tail.length > 1024) this.#compact();
  }

  get omittedBytes(): number {
    this.#compact();
    return this.bytes - this.#headLength - this.#tailLength;
  }

  /** What is kept, with a line that says what is not. */
  text(savedTo?: string): string {
    const omitted = this.omittedBytes;
    const head = Buffer.concat(this.#head);
    const tail = Buffer.concat(this.#tail);
    if (omitted === 0) return Buffer.concat([head, tail]).toString('utf8');
    const where = savedTo === undefined ? '' : `; the whole output is in ${savedTo}`;
    const start = wholeEnd(head).toString('utf8');
    return `${start}\n\n[… ${omitted} bytes omitted${where} …]\n\n${wholeStart(tail).toString('utf8')}`;
  }

  /** The newest bytes, as text. */
  newest(most: number): string {
    this.#compact();
    const all = this.#tailLength >= most ? this.#tail : [...this.#head, ...this.#tail];
    return wholeStart(Buffer.concat(all).subarray(-most)).toString('utf8');
  }

  #compact(): void {
    if (this.#tailLength <= this.#tailBytes && this.#tail.length <= 64) return;
    const whole = Buffer.concat(this.#tail).subarray(-this.#tailBytes);
    this.#tail = [Buffer.from(whole)];
    this.#tailLength = whole.length;
  }
}

const isContinuation = (byte: number | undefined) => byte !== undefined && (byte & 0xc0) === 0x80;

/** Without the end of a character that was cut in two. */
function wholeStart(bytes: Buffer): Buffer {
  let at = 0;
  while (at < 3 && isContinuation(bytes[at])) at++;
  return bytes.subarray(at);
}

/** Without the start of a character that was cut in two. */
function wholeEnd(bytes: Buffer): Buffer {
  let at = bytes.length;
  while (at > bytes.length - 4 && isContinuation(bytes[at - 1])) at--;
  const lead = bytes[at - 1];
  if (lead === undefined || lead < 0xc0) return bytes;
  const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  return bytes.length - at + 1 < length ? bytes.subarray(0, at - 1) : bytes;
}
