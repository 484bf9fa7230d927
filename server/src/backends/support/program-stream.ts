/** The input and output of a program that runs in a container, over whatever connection leads there. */
import { Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';

/** What the stream does with the connection. */
export interface ProgramConnection {
  write(part: Buffer, done: (error?: Error | null) => void): void;
  /** The input has ended. */
  end(done: (error?: Error | null) => void): void;
  pause(): void;
  resume(): void;
  /** Gives the connection up at once. */
  destroy(): void;
}

export interface ProgramStream {
  stream: Duplex;
  /** A part of the program's standard output arrived. */
  onOutput(data: Buffer): void;
  /** It, or who runs it, said something on the side. */
  onWords(data: Buffer): void;
  /** It has ended: with an error if it had something to say. */
  onEnd(): void;
}

const MAX_WORDS = 4096;

/** `action` completes "Cannot …". Output goes at the reader's pace. */
export function programStream(connection: ProgramConnection, action: string): ProgramStream {
  let words = '';
  const stream = new Duplex({
    write: (part: Buffer, _encoding, done) => connection.write(part, done),
    final: (done) => connection.end(done),
    read: () => connection.resume(),
    destroy(error, done) {
      connection.destroy();
      done(error);
    },
  });
  return {
    stream,
    onOutput(data) {
      if (data.length > 0 && !stream.push(data)) connection.pause();
    },
    onWords(data) {
      words = (words + data.toString()).slice(0, MAX_WORDS);
    },
    onEnd() {
      if (words === '') stream.push(null);
      else
        stream.destroy(
          new CayError('unavailable', `Cannot ${action}: ${words.trim() || 'the program has ended'}`),
        );
    },
  };
}
