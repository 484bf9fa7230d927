/**
 * A Program is what the memory backend runs instead of a process: a function that is given what a process
 * has, and resolves with its exit code.
 *
 * ```ts
 * memoryBackend({
 *   commands: {
 *     greet: async ({ argv, stdout }) => {
 *       await stdout.write(`hello ${argv[1]}\n`);
 *       return 0;
 *     },
 *   },
 * });
 * ```
 *
 * A program that throws prints the message and exits with 1. One that is killed has ended for everyone else
 * at once; its `signal` is aborted so that it can stop, and what it still writes goes nowhere.
 */
import type { Duplex } from 'node:stream';
import type { Files } from '../../guest/guest.ts';
import type { User } from './users.ts';

export interface Sink {
  /** Resolves when there is room for more. */
  write(data: Uint8Array | string): Promise<void>;
}

/** A connection to a port of the program. */
export interface Incoming extends Sink {
  readonly readable: AsyncIterable<Uint8Array>;
  /** Ends this side; the other may go on. */
  end(): Promise<void>;
}

export interface Streams {
  stdin: AsyncIterable<Uint8Array>;
  stdout: Sink;
  stderr: Sink;
}

export interface RunOptions extends Partial<Streams> {
  env?: Record<string, string>;
  workdir?: string;
}

export interface ProgramContext extends Streams {
  /** The name it was called by, and its arguments. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  readonly user: User;
  /** Aborted when the command is killed, or the sandbox goes away. */
  readonly signal: AbortSignal;
  /** The sandbox's files, with the user's rights. */
  readonly files: Files;
  /** Makes a path absolute, as seen from the workdir. */
  path(name: string): string;
  /** Runs another program to its end. Rejects as `Guest.exec` does if there is none of that name. */
  run(argv: readonly string[], options?: RunOptions): Promise<number>;
  /** Listens until the program ends. Rejects `already_exists` if the port is taken. */
  listen(
    port: number,
    handler: (connection: Incoming) => Promise<void>,
    options?: { address?: string },
  ): void;
  /**
   * Connects to a name or an address outside, as far as the sandbox may. Rejects `unavailable`, with
   * `details.errno`, if not.
   */
  connect(host: string, port: number): Promise<Duplex>;
  /** Says that the program now uses that much more memory; beyond the sandbox's limit it is `oom_killed`. */
  allocate(bytes: number): void;
  /** Uses that much CPU time, which takes longer the less of it the sandbox may have. */
  compute(cpuMs: number): Promise<void>;
}

export type Program = (context: ProgramContext) => Promise<number> | number;
