/**
 * The log of a build: entries of bounded length, bounded in number. Entries beyond are counted and not kept.
 */
import { StringDecoder } from 'node:string_decoder';
import { ownText } from '../../../lib/own-text.ts';
import type { BuildLogEntry } from './build.ts';

export interface BuildLog {
  readonly entries: readonly BuildLogEntry[];
  add(level: BuildLogEntry['level'], message: string): void;
  /** Says which step begins. */
  step(message: string): void;
  /** Resolves when the next entry is added. */
  more(): Promise<void>;
  /** Splits output into lines and adds each; `end` adds an unfinished last line. */
  lines(level: BuildLogEntry['level'], prefix?: string): { write(data: Uint8Array): void; end(): void };
}

const MAX_ENTRIES = 10_000;
const MAX_CHARACTERS = 2 * 1024 * 1024;
const MAX_LINE = 4096;

/** A shorter text stands in too much that is not secret. */
const SHORTEST_SECRET = 4;

/** `secrets` are masked wherever they stand, each line of one that has several. */
export function buildLog(now: () => number, secrets: readonly string[] = []): BuildLog {
  const entries: BuildLogEntry[] = [];
  let room = MAX_CHARACTERS;
  let more = Promise.withResolvers<void>();
  const masked = secrets
    .flatMap((secret) => [secret, ...secret.split(/\r?\n/)])
    .filter((each) => each.trim().length >= SHORTEST_SECRET)
    .sort((a, b) => b.length - a.length);

  function add(level: BuildLogEntry['level'], given: string, kind: Pick<BuildLogEntry, 'step'> = {}): void {
    if (room <= 0 || entries.length > MAX_ENTRIES) return;
    let message = given;
    for (const secret of masked) message = message.replaceAll(secret, '***');
    const kept = ownText(message, MAX_LINE);
    more.resolve();
    more = Promise.withResolvers();
    room -= kept.length;
    const full = room <= 0 || entries.length === MAX_ENTRIES;
    entries.push(
      full
        ? { atMs: now(), level: 'warn', message: 'The log is full: later lines are not kept' }
        : { atMs: now(), level, message: kept, ...kind },
    );
    if (full) room = 0;
  }

  return {
    entries,
    add: (level, message) => add(level, message),
    step: (message) => add('info', message, { step: true }),
    more: () => more.promise,
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
