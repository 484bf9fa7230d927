/**
 * Lines that the next server reads, one after the other. A line is whole or absent: a server may be killed,
 * and the disk may be full, in the middle of one. It need not survive a power loss: no mount does.
 */
import {
  closeSync,
  existsSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { isName } from './fuse/request.ts';
import type { Kind, ObjectFacts } from './nodes.ts';

/**
 * `+`: a node with parent, name and kind. `-`: it is forgotten. `m`: it has another parent and name. `u`: it
 * has no name. `s`: content that is here, whether the bucket lacks it, what it began with, whether no object
 * may be there, and the ETags that earlier attempts may have made of it. `n`: no node has that number or a
 * larger one.
 */
export type Line =
  | ['+', number, number, string, Kind]
  | ['-', number]
  | ['m', number, number, string]
  | ['u', number]
  | ['s', number, 0 | 1, ObjectFacts | null, 0 | 1, readonly string[]]
  | ['n', number];

export interface JournalOptions {
  /** All that there is to say, for a file in place of this one. */
  all(): Line[];
  /** How many lines a file gets before another takes its place. */
  compactAfter?: number;
}

const COMPACT_AFTER = 400_000;
const TRY_AGAIN_MS = 1_000;

export class Journal {
  readonly #file: string;
  readonly #options: JournalOptions;
  #fd: number | undefined;
  #lines = 0;
  #bytes = 0;
  /**
   * Something could not be written, at that time: the file says less than there is, until another takes its
   * place.
   */
  #behindSinceMs: number | undefined;

  constructor(file: string, options: JournalOptions) {
    this.#file = file;
    this.#options = options;
  }

  get isBehind(): boolean {
    return this.#behindSinceMs !== undefined;
  }

  /**
   * What an earlier server has written. Cuts off what is no whole line; call it once, before the first
   * `write`. With `look` it changes nothing, and nothing can be written.
   */
  read({ look = false }: { look?: boolean } = {}): Line[] {
    const bytes = existsSync(this.#file) ? readFileSync(this.#file) : Buffer.alloc(0);
    const length = bytes.lastIndexOf('\n') + 1;
    if (!look) {
      this.#fd = openSync(this.#file, 'a', 0o600);
      if (length < bytes.length) ftruncateSync(this.#fd, length);
    }
    this.#bytes = length;
    const texts = bytes.toString('utf8', 0, length).split('\n');
    this.#lines = texts.length - 1;
    return texts.map(parseLine).filter((line) => line !== undefined);
  }

  /**
   * Throws if the line has to be there (`must`) and cannot be written: then nothing may be done that it
   * announces. Others are written later, with all that there is.
   */
  write(line: Line, { must }: { must: boolean }): void {
    if (this.#behindSinceMs !== undefined) {
      // The new file has this line's effect only if it has happened. So it is written behind it in any case.
      const isTime = must || this.#behindSinceMs < Date.now() - TRY_AGAIN_MS;
      if (!isTime) return;
      try {
        this.#replace();
      } catch (error) {
        this.#behindSinceMs = Date.now();
        if (must) throw error;
        return;
      }
    }
    try {
      this.#append(`${JSON.stringify(line)}\n`);
    } catch (error) {
      this.#cutOff();
      if (must) throw error;
      this.#behindSinceMs = Date.now();
      return;
    }
    if (++this.#lines <= (this.#options.compactAfter ?? COMPACT_AFTER)) return;
    try {
      this.#replace();
    } catch {
      // The file that is there says everything. The next try is after as many lines.
      this.#lines = 0;
    }
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }

  #append(text: string): void {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length;) at += writeSync(this.#fd!, bytes, at);
    this.#bytes += bytes.length;
  }

  /** Of a line that is half there. */
  #cutOff(): void {
    ftruncateSync(this.#fd!, this.#bytes);
  }

  #replace(): void {
    const lines = this.#options.all();
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    const made = `${this.#file}.new`;
    try {
      writeFileSync(made, text, { mode: 0o600 });
    } catch (error) {
      rmSync(made, { force: true });
      throw error;
    }
    renameSync(made, this.#file);
    closeSync(this.#fd!);
    this.#fd = openSync(this.#file, 'a', 0o600);
    this.#bytes = Buffer.byteLength(text);
    this.#lines = lines.length;
    this.#behindSinceMs = undefined;
  }
}

/** A line, or undefined for what is none. */
export function parseLine(text: string): Line | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(value) || !isId(value[1])) return undefined;
  const [what, id, second, third, fourth, fifth] = value as unknown[];
  if (what === '-' || what === 'u' || what === 'n') return [what, id as number];
  if (what === '+' && isId(second) && isNameText(third) && (fourth === 'file' || fourth === 'directory'))
    return ['+', id as number, second, third, fourth];
  if (what === 'm' && isId(second) && isNameText(third)) return ['m', id as number, second, third];
  if (what === 's' && isBit(second) && (third === null || isFacts(third)))
    return [
      's',
      id as number,
      second,
      third,
      fourth === 1 ? 1 : 0,
      Array.isArray(fifth) ? fifth.map(String) : [],
    ];
  return undefined;
}

const isId = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
const isBit = (value: unknown): value is 0 | 1 => value === 0 || value === 1;
const isNameText = (value: unknown): value is string => typeof value === 'string' && isName(value);

function isFacts(value: unknown): value is ObjectFacts {
  if (typeof value !== 'object' || value === null) return false;
  const { sizeBytes, etag, modifiedAtMs, atMs } = value as Record<string, unknown>;
  const numbers = [sizeBytes, modifiedAtMs, atMs].every((one) => typeof one === 'number' && one >= 0);
  return numbers && typeof etag === 'string';
}
