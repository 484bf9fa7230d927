/**
 * @module Cay as a container runtime with twenty verbs, for programs that were written for one such as Den's.
 * Written on the public API alone.
 */
import type {
  CreateSandboxInput,
  ExecEvent,
  ExecResult,
  FileInfo,
  Health,
  Sandbox as SandboxInfo,
  Snapshot,
  Stats,
} from '../protocol/index.ts';
import type { Content } from '../files.ts';
import { Sandbox } from '../sandbox.ts';
import type { Command } from '../sandbox-commands.ts';
import { connect, type ConnectOptions } from '../transport.ts';

export interface RuntimeExecOptions {
  env?: Record<string, string>;
  workdir?: string;
  user?: string;
  /** Text for standard input. */
  stdin?: string;
  /** After this the whole process tree is killed. */
  timeoutMs?: number;
}

export interface RuntimeStats extends Stats {
  /** Of one core, since the reading before; null for the first. */
  cpuPercent: number | null;
  /** Of the limit; null if there is none. */
  memoryPercent: number | null;
}

export interface Runtime {
  ping(): Promise<Health>;
  create(config?: CreateSandboxInput): Promise<SandboxInfo>;
  start(id: string): Promise<SandboxInfo>;
  /** Gracefully, then by force. Files stay. */
  stop(id: string, graceMs?: number): Promise<SandboxInfo>;
  /** Gone already is done. */
  remove(id: string): Promise<void>;
  info(id: string): Promise<SandboxInfo>;
  list(labels?: Record<string, string>): Promise<SandboxInfo[]>;
  exec(id: string, command: Command, options?: RuntimeExecOptions): Promise<ExecResult>;
  execStream(
    id: string,
    command: Command,
    options?: RuntimeExecOptions,
  ): AsyncGenerator<ExecEvent, void, undefined>;
  readFile(id: string, path: string): Promise<Uint8Array>;
  writeFile(id: string, path: string, content: Content): Promise<void>;
  listDir(id: string, path: string): Promise<FileInfo[]>;
  mkDir(id: string, path: string): Promise<void>;
  removeFile(id: string, path: string): Promise<void>;
  snapshot(id: string, name?: string): Promise<Snapshot>;
  /** A new sandbox from a snapshot, with the limits, environment and policy that it was taken with. */
  restore(snapshot: string): Promise<SandboxInfo>;
  listSnapshots(id: string): Promise<Snapshot[]>;
  removeSnapshot(snapshot: string): Promise<void>;
  stats(id: string): Promise<RuntimeStats>;
  /** Holds at once, up and down. */
  updateMemoryLimit(id: string, memoryBytes: number): Promise<SandboxInfo>;
}

export function runtime(options: ConnectOptions = {}): Runtime {
  const transport = connect(options);
  const readings = new Map<string, Stats>();
  const find = (id: string) => Sandbox.connect(id, options);
  const execOptions = ({ stdin, ...rest }: RuntimeExecOptions) => ({ ...rest, input: stdin });

  return {
    ping: () => transport.json('GET', '/v1/health'),
    create: async (config = {}) => (await Sandbox.create(config, options)).info,
    start: async (id) => (await find(id)).start(),
    stop: async (id, graceMs) => (await find(id)).stop({ graceMs }),
    async remove(id) {
      readings.delete(id);
      await transport.json('DELETE', `/v1/sandboxes/${encodeURIComponent(id)}`);
    },
    info: async (id) => (await find(id)).info,
    async list(labels) {
      const found: SandboxInfo[] = [];
      for await (const { info } of Sandbox.list({ ...options, labels })) found.push(info);
      return found;
    },
    exec: async (id, command, more = {}) => (await find(id)).exec(command, execOptions(more)),
    async *execStream(id, command, more = {}) {
      yield* (await find(id)).execStream(command, execOptions(more));
    },
    readFile: async (id, path) => (await find(id)).files.read(path),
    async writeFile(id, path, content) {
      await (await find(id)).files.write(path, content);
    },
    async listDir(id, path) {
      const found: FileInfo[] = [];
      for await (const file of (await find(id)).files.list(path)) found.push(file);
      return found;
    },
    async mkDir(id, path) {
      await (await find(id)).files.mkdir(path);
    },
    removeFile: async (id, path) => (await find(id)).files.remove(path, { recursive: true }),
    snapshot: async (id, name) => (await find(id)).snapshot({ name }),
    restore: async (snapshot) =>
      (await Sandbox.create({ snapshot: snapshot as `snap_${string}` }, options)).info,
    async listSnapshots(id) {
      const found: Snapshot[] = [];
      for await (const snapshot of (await find(id)).snapshots()) found.push(snapshot);
      return found;
    },
    async removeSnapshot(snapshot) {
      await transport.json('DELETE', `/v1/snapshots/${encodeURIComponent(snapshot)}`);
    },
    async stats(id) {
      const now = await (await find(id)).stats();
      const before = readings.get(id);
      readings.set(id, now);
      const limit = now.memoryLimitBytes;
      return {
        ...now,
        cpuPercent:
          before && now.atMs > before.atMs && now.cpuUsageMs >= before.cpuUsageMs
            ? (100 * (now.cpuUsageMs - before.cpuUsageMs)) / (now.atMs - before.atMs)
            : null,
        memoryPercent: limit === null ? null : (100 * now.memoryBytes) / limit,
      };
    },
    updateMemoryLimit: async (id, memoryBytes) => (await find(id)).update({ limits: { memoryBytes } }),
  };
}
