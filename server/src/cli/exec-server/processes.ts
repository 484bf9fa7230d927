/** The processes of one connection: started in the sandbox, read by polling or by notifications. */
import type { Output, Process, Sandbox } from '@cay/sdk/client';
import { shellExitCode } from '@cay/sdk/client';
import { systemReason } from '@cay/sdk/system-error';
import { invalid, RpcError } from './rpc-error.ts';

export interface StartParams {
  processId: string;
  argv: string[];
  cwd: string;
  env: Record<string, string>;
  tty: boolean;
  pipeStdin: boolean;
  arg0: string | null;
}

interface Chunk {
  seq: number;
  stream: Output['channel'];
  chunk: string;
}

interface Managed {
  process: Process;
  writable: boolean;
  chunks: Chunk[];
  heldBytes: number;
  seq: number;
  exitCode: number | undefined;
  closed: boolean;
  failure: string | null;
  /** Writes that were taken, by the id that the client gave them: one is taken once. */
  writes: Set<string>;
  changed: () => void;
  change: Promise<void>;
}

/** Output that is kept for `process/read`; beyond it the oldest goes. */
const KEPT_BYTES = 1024 * 1024;
const MOST_PROCESSES = 64;
const MOST_WRITES = 4096;
const LONGEST_WAIT_MS = 60_000;
const PTY = { cols: 80, rows: 24 };

/** `notify` may wait for a slow client, which then holds up the process and not the memory. */
export function openProcesses(
  sandbox: Sandbox,
  notify: (method: string, params: object) => void | Promise<void>,
) {
  let over = false;
  const all = new Map<string, Managed | 'starting'>();

  function find(id: string): Managed {
    const found = all.get(id);
    if (found === undefined || found === 'starting') throw invalid(`There is no process "${id}"`);
    return found;
  }

  function wake(managed: Managed): void {
    managed.changed();
    managed.change = new Promise((resolve) => (managed.changed = resolve));
  }

  async function take(id: string, managed: Managed, { channel, data }: Output): Promise<void> {
    const chunk: Chunk = { seq: ++managed.seq, stream: channel, chunk: Buffer.from(data).toString('base64') };
    managed.chunks.push(chunk);
    managed.heldBytes += chunk.chunk.length;
    while (managed.heldBytes > KEPT_BYTES && managed.chunks.length > 1)
      managed.heldBytes -= managed.chunks.shift()!.chunk.length;
    wake(managed);
    await notify('process/output', { processId: id, ...chunk });
  }

  async function follow(id: string, managed: Managed): Promise<void> {
    try {
      for await (const output of managed.process) await take(id, managed, output);
      managed.exitCode = shellExitCode(await managed.process.ended);
      await notify('process/exited', { processId: id, seq: ++managed.seq, exitCode: managed.exitCode });
    } catch (error) {
      managed.failure = systemReason(error);
    }
    managed.closed = true;
    const seq = ++managed.seq;
    wake(managed);
    await notify('process/closed', { processId: id, seq });
  }

  return {
    async start({ processId, argv, cwd, env, tty, pipeStdin, arg0 }: StartParams) {
      if (all.has(processId)) throw invalid(`Process "${processId}" exists already`);
      if (all.size >= MOST_PROCESSES) forgetEnded(all);
      if (all.size >= MOST_PROCESSES) throw invalid(`There are ${MOST_PROCESSES} processes already`);
      all.set(processId, 'starting');
      try {
        const process = await sandbox.spawn(named(argv, arg0), {
          env,
          workdir: cwd,
          ...(tty ? { pty: PTY } : { stdin: pipeStdin }),
        });
        if (over) process.kill('SIGKILL');
        const managed: Managed = {
          process,
          writable: tty || pipeStdin,
          chunks: [],
          heldBytes: 0,
          seq: 0,
          exitCode: undefined,
          closed: false,
          failure: null,
          writes: new Set(),
          changed: () => {},
          change: Promise.resolve(),
        };
        wake(managed);
        all.set(processId, managed);
        // The client is gone, and nothing else wants the message.
        follow(processId, managed).catch(() => {});
      } catch (error) {
        all.delete(processId);
        throw error;
      }
      // What isolates is the sandbox: no further one is made inside.
      return { processId, sandboxType: 'none' };
    },

    async read(id: string, afterSeq: number, maxBytes: number, waitMs: number) {
      const managed = find(id);
      const until = Date.now() + Math.min(waitMs, LONGEST_WAIT_MS);
      while (managed.seq <= afterSeq && !managed.closed && Date.now() < until)
        await Promise.race([managed.change, delay(until - Date.now())]);
      const chunks: Chunk[] = [];
      let bytes = 0;
      for (const chunk of managed.chunks) {
        if (chunk.seq <= afterSeq) continue;
        bytes += chunk.chunk.length * 0.75;
        if (chunks.length > 0 && bytes > maxBytes) break;
        chunks.push(chunk);
      }
      const complete = chunks.at(-1)?.seq === managed.chunks.at(-1)?.seq || chunks.length === 0;
      return {
        chunks,
        nextSeq: complete ? managed.seq + 1 : chunks.at(-1)!.seq + 1,
        exited: complete && managed.exitCode !== undefined,
        exitCode: complete ? (managed.exitCode ?? null) : null,
        closed: complete && managed.closed,
        failure: managed.failure,
        sandboxDenied: false,
      };
    },

    async write(id: string, data: Uint8Array, writeId: string | undefined) {
      const found = all.get(id);
      if (found === undefined) return { status: 'unknownProcess' };
      if (found === 'starting') return { status: 'starting' };
      if (!found.writable || found.closed) return { status: 'stdinClosed' };
      if (writeId !== undefined) {
        if (found.writes.has(writeId)) return { status: 'accepted' };
        if (found.writes.size >= MOST_WRITES) found.writes.delete(found.writes.values().next().value!);
        found.writes.add(writeId);
      }
      await found.process.write(data);
      return { status: 'accepted' };
    },

    interrupt(id: string) {
      find(id).process.kill('SIGINT');
      return {};
    },

    terminate(id: string) {
      const found = all.get(id);
      if (found === undefined || found === 'starting' || found.closed) return { running: false };
      found.process.kill('SIGKILL');
      return { running: true };
    },

    /** Ends all that runs: a client that is gone leaves nothing behind. */
    close() {
      over = true;
      for (const managed of all.values())
        if (managed !== 'starting' && !managed.closed) managed.process.kill('SIGKILL');
      all.clear();
    },
  };
}

function forgetEnded(all: Map<string, Managed | 'starting'>): void {
  for (const [id, managed] of all) if (managed !== 'starting' && managed.closed) all.delete(id);
}

/** A program under another name than its own, which only a shell can start so. */
function named(argv: string[], arg0: string | null): string[] {
  if (argv.length === 0) throw new RpcError(-32602, '"argv" must not be empty');
  return arg0 === null || arg0 === argv[0] ? argv : ['bash', '-c', 'exec -a "$0" "$@"', arg0, ...argv];
}

const delay = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms).unref());
