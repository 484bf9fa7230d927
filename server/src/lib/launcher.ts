import { spawn, type ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { systemReason } from '@cay/sdk/system-error';
import { launchDirectly } from './launch-directly.ts';

export interface Launch {
  /** The program and its arguments. */
  argv: readonly string[];
  cwd?: string | undefined;
  /** The whole environment. */
  env: NodeJS.ProcessEnv;
  /** Bytes to keep of each stream. */
  keepBytes: number;
  stdin?: string | Uint8Array | undefined;
  /** Gives the program no pipes. */
  silent?: boolean | undefined;
}

export type LaunchEnd =
  | { kind: 'exited'; code: number; stdout: Buffer; stderr: Buffer }
  | { kind: 'signalled'; signal: string; stdout: Buffer; stderr: Buffer }
  | { kind: 'notStarted'; errno: string };

export interface Launched {
  /** Rejects if the launcher itself ends before it has answered. */
  ended: Promise<LaunchEnd>;
  /** SIGKILL. What the program has left behind is not waited for. */
  kill(): void;
}

/**
 * A Launcher starts programs from a small process of its own.
 *
 * Node starts a program by `fork`, which copies the page tables of the whole process on the event loop: 0.8
 * ms with 50 MB of resident memory, 6 ms with 400 MB. A launcher is asked by a frame on a pipe instead.
 *
 * The process of the launcher starts with the first program, and again if it has ended. It does not keep this
 * process alive unless a program is waited for. If this process ends, what the launcher has started goes on,
 * as children of this process would.
 */
export interface Launcher {
  launch(request: Launch): Launched;
  /** Programs that were started go on. */
  close(): void;
}

const START = 1;
const KILL = 2;
const NO_PIPES = 1;
/** Bytes of an answer before its fields: length, id, how it ended, number. */
const HEAD_BYTES = 13;

interface Pending {
  resolve(end: LaunchEnd): void;
  reject(error: Error): void;
}

/**
 * `program` with `args` is `cay-guest launch`, whose source has the frames. Where it does not start, programs
 * are started directly.
 */
export function openLauncher(program: string, args: readonly string[]): Launcher {
  let running: ReturnType<typeof begin> | undefined;
  let works = true;
  let nextId = 0;

  function begin() {
    const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'ignore'], env: {} });
    const pending = new Map<number, Pending>();
    /** What was asked for before the launcher said that it takes requests. */
    let early: (() => void)[] | undefined = [];
    const end = (reason: string) => {
      if (running?.child === child) running = undefined;
      if (early) works = false;
      for (const { reject } of pending.values()) reject(new Error(`The launcher "${program}" ${reason}`));
      pending.clear();
      for (const launch of early ?? []) launch();
      early = undefined;
    };
    child.on('error', (error) => end(`cannot be started: ${systemReason(error)}`));
    child.on('exit', (code, signal) => end(`ended by ${signal ?? `exit code ${code}`}`));
    // Its end says why.
    child.stdin.on('error', () => {});
    readAnswers(child.stdout, (id, answer) => {
      const launches = early ?? [];
      early = undefined;
      for (const launch of launches) launch();
      pending.get(id)?.resolve(answer);
      pending.delete(id);
      if (pending.size === 0) unref(child);
    });

    function send(request: Launch): Launched {
      const id = ++nextId;
      const { promise, ...pendingEnd } = Promise.withResolvers<LaunchEnd>();
      if (pending.size === 0) (child.stdout as Socket).ref();
      pending.set(id, pendingEnd);
      child.stdin.write(startFrame(id, request));
      return {
        ended: promise,
        kill() {
          if (pending.has(id)) child.stdin.write(frameOf(KILL, id, []));
        },
      };
    }

    return {
      child,
      send(request: Launch): Launched {
        const waiting = early;
        if (!waiting) return send(request);
        let launched: Launched | undefined;
        let killed = false;
        const ended = new Promise<Launched>((resolve) => {
          waiting.push(() => {
            launched = works ? send(request) : launchDirectly(request);
            if (killed) launched.kill();
            resolve(launched);
          });
        }).then((begun) => begun.ended);
        return { ended, kill: () => (launched ? launched.kill() : (killed = true)) };
      },
    };
  }

  return {
    launch(request) {
      if (!works) return launchDirectly(request);
      running ??= begin();
      return running.send(request);
    },
    close() {
      running?.child.stdin.end();
    },
  };
}

/** Neither the process nor its pipes keep this process alive. */
function unref(child: ChildProcess): void {
  child.unref();
  for (const stream of [child.stdin, child.stdout]) (stream as Socket | null)?.unref();
}

function startFrame(id: number, { argv, cwd = '', env, keepBytes, stdin = '', silent }: Launch): Buffer {
  const variables = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${value}`],
  );
  return frameOf(START, id, [
    number(silent ? NO_PIPES : 0),
    number(keepBytes),
    ...field(cwd),
    number(argv.length),
    ...argv.flatMap(field),
    number(variables.length),
    ...variables.flatMap(field),
    ...field(stdin),
  ]);
}

function frameOf(kind: number, id: number, rest: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat([Uint8Array.of(kind), number(id), ...rest]);
  return Buffer.concat([number(body.length), body]);
}

function number(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function field(value: string | Uint8Array): Uint8Array[] {
  const bytes = typeof value === 'string' ? Buffer.from(value) : value;
  return [number(bytes.length), bytes];
}

function readAnswers(stream: Readable, onAnswer: (id: number, end: LaunchEnd) => void): void {
  let held: Buffer = Buffer.alloc(0);
  stream.on('data', (chunk: Buffer) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
      const length = 4 + held.readUInt32LE(0);
      onAnswer(held.readUInt32LE(4), endOf(held.subarray(0, length)));
      held = held.subarray(length);
    }
  });
}

function endOf(answer: Buffer): LaunchEnd {
  const how = answer[8];
  const value = answer.readInt32LE(9);
  if (how === 2) return { kind: 'notStarted', errno: nameOf(constants.errno, value) };
  const stdoutEnd = HEAD_BYTES + 4 + answer.readUInt32LE(HEAD_BYTES);
  const stdout = answer.subarray(HEAD_BYTES + 4, stdoutEnd);
  const stderr = answer.subarray(stdoutEnd + 4);
  if (how === 0) return { kind: 'exited', code: value, stdout, stderr };
  return { kind: 'signalled', signal: nameOf(constants.signals, value), stdout, stderr };
}

function nameOf(names: Record<string, number>, value: number): string {
  return Object.entries(names).find(([, known]) => known === value)?.[0] ?? String(value);
}
