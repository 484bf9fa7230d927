/**
 * The log of a build: entries of bounded length, bounded in number. Entries beyond are counted and not kept.
 */
import { StringDecoder } from 'node:string_decoder';
import type { BuildLogEntry } from './build.ts';

export interface BuildLog {
  readonly entries: readonly BuildLogEntry[];
  add(level: BuildLogEntry['level'], message: string): void;
  /** Splits output into lines and adds each; `end` adds an unfinished last line. */
  lines(level: BuildLogEntry['level'], prefix?: string): { write(data: Uint8Array): void; end(): void };
}

const MAX_ENTRIES = 10_000;
const MAX_CHARACTERS = 2 * 1024 * 1024;
const MAX_LINE = 4096;

export function buildLog(now: () => number): BuildLog {
  const entries: BuildLogEntry[] = [];
  let room = MAX_CHARACTERS;

  function add(level: BuildLogEntry['level'], message: string): void {
    if (room <= 0 || entries.length > MAX_ENTRIES) return;
    const kept = message.slice(0, MAX_LINE);
    room -= kept.length;
    const full = room <= 0 || entries.length === MAX_ENTRIES;
    entries.push(
      full
        ? { atMs: now(), level: 'warn', message: 'The log is full: later lines are not kept' }
        : { atMs: now(), level, message: kept },
    );
    if (full) room = 0;
  }

  return {
    entries,
    add,
    lines(level, prefix = '') {
      const decoder = new StringDecoder();
      let line = '';
      const take = (text: string) => {
        const parts = (line + text).split('\n');
        line = parts.pop()!;
        for (const part of parts) add(level, prefix + part.replace(/\r$/, ''));
        // A line without an end is added in pieces.
        for (; line.length > MAX_LINE; line = line.slice(MAX_LINE))
          add(level, prefix + line.slice(0, MAX_LINE));
      };
      return {
        write: (data) => take(decoder.write(Buffer.from(data.buffer, data.byteOffset, data.byteLength))),
        end() {
          take(decoder.end());
          if (line !== '') add(level, prefix + line);
          line = '';
        },
      };
    },
  };
}
