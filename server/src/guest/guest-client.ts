/**
 * A guest over one connection. The client ends with the connection; `guest-link.ts` has a guest that survives
 * it.
 */
import { CayError } from '@cay/sdk/protocol';
import type { Duplex } from 'node:stream';
import { bytesOf, call, promptMessage, upload } from './call.ts';
import type { CborMap } from './cbor.ts';
import { guestCommands, type GuestCommands } from './commands.ts';
import { GuestConnection, type ConnectOptions } from './connection.ts';
import { guestFiles } from './files.ts';
import type { CallOptions, Files, Guest, Ports } from './guest.ts';
import { int, parseEnvironment, type GuestHello } from './parse.ts';
import { guestPorts } from './ports.ts';
import { guestTool } from './tool.ts';
import { cancelled } from './stream.ts';
import { unlessAborted, withTimeout } from '../lib/timeout.ts';

export interface GuestStats {
  processes: number;
  memoryBytes: number;
  memoryTotalBytes: number;
  oomKills: number;
  /** 0 from a guest that does not count it. */
  cpuUsageMs: number;
  uptimeMs: number;
}

/** Limits that the guest enforces where the kernel cannot; an absent one is left as it is. */
export interface GuardedLimits {
  memoryLimit?: number | null;
  pidsLimit?: number | null;
}

/** What can be changed while the guest is connected. */
export interface GuestSettings extends GuardedLimits {
  /** Whether names and connections of programs are brought to the server. */
  egress?: boolean;
  hostname?: string;
}

/** While it is there, no process of the sandbox runs. */
export interface Still {
  /** Lets them go on. */
  release(): void;
  /** They go on already, because the connection has ended. */
  readonly isOver: boolean;
}

export interface GuestClient extends GuestCommands {
  files(user: string): Files;
  tool: Guest['tool'];
  readonly ports: Ports;
  readonly hello: GuestHello;
  readonly connection: GuestConnection;
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>;
  close(reason?: string): void;
  /**
   * Asks the guest to close the connection and to dial again after that time. Resolves when it has closed.
   */
  hangup(dialAfterMs: number): Promise<void>;
  /** Resolves when the guest has answered. */
  ping(): Promise<void>;
  /** With `aside` the question does not count as use of the sandbox. */
  stats(options?: CallOptions & { aside?: boolean }): Promise<GuestStats>;
  /** The variables that the guest was started with, as `NAME=value`. At most 32 KiB. */
  environment(options?: CallOptions): Promise<string[]>;
  disk(path: string, options?: CallOptions): Promise<{ totalBytes: number; freeBytes: number }>;
  /** Changes the limits and the hostname of the hello; `null` lifts a limit. */
  configure(settings: GuestSettings, options?: CallOptions): Promise<void>;
  /**
   * Makes the guest listen on a TCP port for clients that have the key; an earlier key becomes invalid.
   * Resolves with the port, which matters for port 0.
   */
  listen(door: { port: number; key: Uint8Array }, options?: CallOptions): Promise<number>;
  /**
   * Stops all processes; calls that start afterwards wait until `thaw`. For platforms that cannot freeze a
   * sandbox from outside.
   */
  freeze(options?: CallOptions): Promise<void>;
  thaw(options?: CallOptions): Promise<void>;
  /**
   * Stops all processes until it is disposed of, or the connection ends. Calls that start meanwhile wait,
   * except `pack`. Rejects `unsupported` for a guest of an earlier version.
   */
  still(options?: CallOptions): Promise<Still>;
  /**
   * These paths below `path` and everything below them as a tar stream with hard links and attributes, read
   * with the rights of `user`. Directories in `except` are left out with all that is below them.
   */
  pack(
    request: { user: string; path: string; paths: string[]; except?: string[] },
    options?: CallOptions,
  ): AsyncIterable<Uint8Array>;
  /** Unpacks what `pack` has packed. Owners become `user`. */
  unpack(
    request: { user: string; path: string },
    data: AsyncIterable<Uint8Array>,
    options?: CallOptions,
  ): Promise<{ entries: number; bytes: number }>;
  /**
   * SIGTERM to all processes, SIGKILL after the grace. Resolves when the guest is gone. With `again` the
   * guest restarts in the same process, so that a container goes on with its files and without its processes.
   */
  shutdown(graceMs: number, options?: { again?: boolean }): Promise<void>;
}

/** How much longer than its grace a shutdown may take. */
const SHUTDOWN_SLACK_MS = 5_000;

/** Resolves when both sides have said hello. If it rejects, the transport is destroyed. */
export async function connectGuest(transport: Duplex, options: ConnectOptions): Promise<GuestClient> {
  const connection = await GuestConnection.connect(transport, options);
  const reach = () => connection;

  return {
    ...guestCommands(reach),
    files: (user) => guestFiles(reach, user),
    tool: (user, request, call) => guestTool(reach, user, request, call),
    ports: guestPorts(reach),
    hello: connection.hello,
    connection,
    closed: connection.closed,
    close: (reason) => connection.close(reason),
    hangup: (dialAfterMs) => connection.hangup(dialAfterMs),
    ping: () => connection.ping(),
    stats: (given) => call(reach, { op: 'stats', options: given, aside: given?.aside }, parseStats),
    environment: (callOptions) => call(reach, { op: 'environment', options: callOptions }, parseEnvironment),
    disk: (path, callOptions) =>
      call(reach, { op: 'disk', request: { path, user: 'root' }, options: callOptions }, (answer) => ({
        totalBytes: int(answer, 'totalBytes'),
        freeBytes: int(answer, 'freeBytes'),
      })),
    configure: (settings, callOptions) =>
      call(reach, { op: 'configure', request: { ...settings }, options: callOptions }, () => undefined),
    listen: (door, callOptions) =>
      call(reach, { op: 'listen', request: { ...door }, options: callOptions }, (answer) =>
        int(answer, 'port'),
      ),
    freeze: (callOptions) => call(reach, { op: 'freeze', options: callOptions }, () => undefined),
    thaw: (callOptions) => call(reach, { op: 'thaw', options: callOptions }, () => undefined),
    async still(callOptions) {
      // The signal bounds the answer, and not how long it is still.
      if (callOptions?.signal?.aborted) throw cancelled(callOptions.signal);
      const stream = connection.open('still', {});
      const release = () => stream.reset(new CayError('cancelled', 'The sandbox goes on'));
      try {
        await unlessAborted(promptMessage(stream, 'still'), callOptions?.signal, cancelled);
      } catch (error) {
        release();
        throw error;
      }
      stream.markLongLived();
      return {
        release,
        get isOver() {
          return stream.over;
        },
      };
    },
    pack: ({ user, path, paths, except }, callOptions) => {
      const request = { user, path, paths, ...(except && { except }) };
      return bytesOf(connection.open('pack', request, { signal: callOptions?.signal, half: true }));
    },
    async unpack({ user, path }, data, callOptions) {
      const stream = connection.open('unpack', { user, path }, { signal: callOptions?.signal });
      return upload(stream, data, (answer) => ({
        entries: int(answer, 'entries'),
        bytes: int(answer, 'bytes'),
      }));
    },
    async shutdown(graceMs, { again = false } = {}) {
      const stream = connection.open('shutdown', { graceMs, ...(again && { again }) }, { half: true });
      await withTimeout(
        Promise.race([connection.closed, refused(stream.read())]),
        graceMs + SHUTDOWN_SLACK_MS,
        () =>
          new CayError(
            'deadline_exceeded',
            `The guest of sandbox "${options.sandbox}" did not shut down in time`,
          ),
      );
    },
  };

  /** Rejects if the guest refuses. Answers, and the end of the connection, are not failures. */
  async function refused(answer: Promise<unknown>): Promise<void> {
    try {
      await answer;
    } catch (error) {
      if (!connection.error) throw error;
    }
    await connection.closed;
  }
}

function parseStats(answer: CborMap): GuestStats {
  return {
    processes: int(answer, 'processes'),
    memoryBytes: int(answer, 'memoryBytes'),
    memoryTotalBytes: int(answer, 'memoryTotalBytes'),
    oomKills: int(answer, 'oomKills'),
    cpuUsageMs: 'cpuUsageMs' in answer ? int(answer, 'cpuUsageMs') : 0,
    uptimeMs: int(answer, 'uptimeMs'),
  };
}
