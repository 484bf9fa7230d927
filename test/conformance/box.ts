import type { CommandEnd, ExecRequest, SandboxId } from '@cay/sdk/protocol';
import type { CommandHandle, Files, Guest, OutputGap } from '../../server/src/guest/guest.ts';

export interface RunOptions extends Omit<ExecRequest, 'argv' | 'shell' | 'stdin'> {
  /** Sent to standard input, which is then closed. */
  stdin?: Uint8Array | string;
}

export interface Ran {
  end: CommandEnd;
  /** -1 unless the command exited. */
  exitCode: number;
  stdout: string;
  stderr: string;
  /** All output, in order. */
  bytes: Buffer;
  gaps: OutputGap[];
}

/** A running sandbox as the cases use it: its guest, and the short ways to run a line and to touch files. */
export interface Box {
  readonly id: SandboxId;
  readonly guest: Guest;
  /** As the default user. */
  readonly files: Files;
  /** As the strongest user there is. */
  readonly root: Files;
  /** Its name: `root`, or the default user where that is the only one. */
  readonly strongest: string;
  /** A directory of the case's own, owned by the default user. */
  readonly dir: string;
  /** Starts an argv, or a shell line if it is a string. */
  start(command: string[] | string, options?: Omit<ExecRequest, 'argv' | 'shell'>): Promise<CommandHandle>;
  /** Runs it to its end. */
  run(command: string[] | string, options?: RunOptions): Promise<Ran>;
  write(name: string, content: Uint8Array | string): Promise<string>;
  read(path: string): Promise<Buffer>;
}

let counter = 0;

export function makeBox(id: SandboxId, guest: Guest, dir: string, strongest = 'root'): Box {
  const files = guest.files('user');
  const box: Box = {
    id,
    guest,
    files,
    root: guest.files(strongest),
    strongest,
    dir,
    start(command, options = {}) {
      return guest.exec({
        id: `case-${++counter}`,
        env: {},
        workdir: dir,
        user: 'user',
        ...options,
        ...(typeof command === 'string' ? { shell: command } : { argv: command }),
      });
    },
    async run(command, { stdin, ...options } = {}) {
      const handle = await box.start(command, { ...options, ...(stdin !== undefined && { stdin: true }) });
      const feeding = stdin === undefined ? undefined : feed(handle, Buffer.from(stdin));
      const ran = await drain(handle);
      await feeding;
      return ran;
    },
    async write(name, content) {
      const path = name.startsWith('/') ? name : `${dir}/${name}`;
      await files.write(path, Buffer.from(content));
      return path;
    },
    async read(path) {
      return gather((await files.read(path.startsWith('/') ? path : `${dir}/${path}`)).data);
    },
  };
  return box;
}

/** A command may end without reading all of its input; that is not the writer's failure. */
async function feed(handle: CommandHandle, data: Uint8Array): Promise<void> {
  try {
    for (let at = 0; at < data.length; at += 65_536) await handle.write(data.subarray(at, at + 65_536));
    await handle.closeStdin();
  } catch {}
}

/** Reads a command to its end. */
export async function drain(handle: CommandHandle): Promise<Ran> {
  const all: Uint8Array[] = [];
  const stdout: Uint8Array[] = [];
  const stderr: Uint8Array[] = [];
  const gaps: OutputGap[] = [];
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap') {
      gaps.push(chunk);
      continue;
    }
    all.push(chunk.data);
    (chunk.channel === 'stderr' ? stderr : stdout).push(chunk.data);
  }
  const end = await handle.ended;
  return {
    end,
    exitCode: end.kind === 'exited' ? end.exitCode : -1,
    stdout: Buffer.concat(stdout).toString(),
    stderr: Buffer.concat(stderr).toString(),
    bytes: Buffer.concat(all),
    gaps,
  };
}

export async function gather(data: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of data) parts.push(part);
  return Buffer.concat(parts);
}

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

export async function* inPieces(data: Uint8Array, size: number): AsyncIterable<Uint8Array> {
  for (let at = 0; at < data.length; at += size) yield data.subarray(at, at + size);
}

/** Bytes that repeat in no short period, so that a lost, doubled or swapped piece shows. */
export function noise(length: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(length);
  let state = seed >>> 0 || 1;
  for (let at = 0; at + 4 <= length; at += 4) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes.writeUInt32LE(state >>> 0, at);
  }
  return bytes;
}

/** Looks until it is true. Rejects with what was waited for. */
export async function until(
  what: string,
  look: () => Promise<boolean> | boolean,
  withinMs = 10_000,
): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!(await look())) {
    if (Date.now() > deadline) throw new Error(`Waited ${withinMs} ms in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/**
 * Rejects if the promise has not settled in time, so that a case fails by name and not by the runner's clock.
 */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Waited ${ms} ms in vain for ${what}`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
