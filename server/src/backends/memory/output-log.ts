import type { OutputChannel } from '@cay/sdk/protocol';
import type { OutputChunk, OutputGap } from '../../guest/guest.ts';
import { changeSignal } from './change-signal.ts';

const PIECE = 16 * 1024;

/** A reader's place in a log. */
export interface LogReader {
  /**
   * The next piece, or `undefined` when the log is complete or the reader was closed. Asking for it
   * acknowledges the one before.
   */
  next(): Promise<OutputChunk | OutputGap | undefined>;
  /** True once all that was written so far has been taken. */
  readonly drained: boolean;
  close(): void;
}

/**
 * What a command has written, of which at most `keepBytes` are kept.
 *
 * With `wait` only what a reader has taken may make room, and the writer waits for that; with `drop` the
 * oldest does.
 */
export interface OutputLog {
  readonly outputBytes: number;
  readonly keptFrom: number;
  write(channel: OutputChannel, data: Uint8Array): Promise<void>;
  /** Nothing more is written; a writer that waits is released. */
  complete(): void;
  read(offset: number): LogReader;
  /** True while a client is attached, which may still have to read what is kept. */
  readonly inUse: boolean;
  /** Lets go of all that is kept. */
  forget(): void;
}

export function outputLog(keepBytes: number, overflow: 'wait' | 'drop'): OutputLog {
  const chunks: OutputChunk[] = [];
  const readers = new Set<{ at: number }>();
  const changed = changeSignal();
  let outputBytes = 0;
  let keptFrom = 0;
  let acknowledged = 0;
  let completed = false;

  const mayForget = (chunk: OutputChunk) => {
    if (overflow === 'drop') return true;
    const end = chunk.offset + chunk.data.length;
    return end <= acknowledged && [...readers].every(({ at }) => at >= end);
  };

  function makeRoom(bytes: number): boolean {
    while (chunks.length > 0 && outputBytes - keptFrom + bytes > keepBytes && mayForget(chunks[0]!))
      keptFrom += chunks.shift()!.data.length;
    return outputBytes - keptFrom + bytes <= keepBytes || chunks.length === 0;
  }

  return {
    get outputBytes() {
      return outputBytes;
    },
    get keptFrom() {
      return keptFrom;
    },
    get inUse() {
      return readers.size > 0;
    },
    async write(channel, data) {
      const step = Math.min(PIECE, keepBytes);
      for (let at = 0; at < data.length; at += step) {
        const piece = data.slice(at, at + step);
        while (!completed && !makeRoom(piece.length)) await changed.wait();
        if (completed) return;
        chunks.push({ channel, offset: outputBytes, data: piece });
        outputBytes += piece.length;
        changed.notify();
      }
    },
    complete() {
      completed = true;
      changed.notify();
    },
    read(offset) {
      const place = { at: Math.min(offset, outputBytes) };
      let open = true;
      readers.add(place);
      const close = () => {
        open = false;
        readers.delete(place);
        changed.notify();
      };
      return {
        async next() {
          acknowledged = Math.max(acknowledged, place.at);
          changed.notify();
          while (open && place.at >= outputBytes && !completed) await changed.wait();
          if (!open || place.at >= outputBytes) {
            close();
            return undefined;
          }
          if (place.at < keptFrom) {
            const gap: OutputGap = { channel: 'gap', offset: place.at, bytes: keptFrom - place.at };
            place.at = keptFrom;
            return gap;
          }
          const chunk = chunks[indexAt(chunks, place.at)]!;
          const taken = {
            channel: chunk.channel,
            offset: place.at,
            data: chunk.data.subarray(place.at - chunk.offset),
          };
          place.at = chunk.offset + chunk.data.length;
          return taken;
        },
        get drained() {
          return place.at >= outputBytes;
        },
        close,
      };
    },
    forget() {
      chunks.length = 0;
      keptFrom = outputBytes;
      changed.notify();
    },
  };
}

/** The chunk that has the byte at `offset`. Precondition: one does. */
function indexAt(chunks: OutputChunk[], offset: number): number {
  let low = 0;
  let high = chunks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (chunks[middle]!.offset <= offset) low = middle;
    else high = middle - 1;
  }
  return low;
}
