import type {
  CommandEnd,
  CommandInfo,
  ExecRequest,
  FileEvent,
  FileInfo,
  OutputChannel,
  PtySize,
  Signal,
} from '@cay/sdk/protocol';

import type { CborMap } from './cbor.ts';

export interface CallOptions {
  /** Aborting it gives the call up; what the guest has done already stays done. */
  signal?: AbortSignal;
}

/** An exec request with the defaults of the sandbox filled in. */
export interface GuestExec extends ExecRequest {
  id: string;
  env: Record<string, string>;
  workdir: string;
  user: string;
}

export interface OutputChunk {
  channel: OutputChannel;
  /** Offset of the first byte of `data` in the command's output. */
  offset: number;
  data: Uint8Array;
}

/** Output between `offset` and `offset + bytes` was dropped because no reader took it in time. */
export interface OutputGap {
  channel: 'gap';
  offset: number;
  bytes: number;
}

/**
 * One reader of a command. Disposing of it, or aborting the signal it was made with, detaches the reader; the
 * command goes on.
 */
export interface CommandHandle extends AsyncDisposable {
  readonly id: string;
  readonly pid: number;
  /** True if the id was known already and no process was started. */
  readonly existing: boolean;
  /**
   * Output in order, from the requested offset to the end. Can be iterated once. The guest is granted credit
   * only as chunks are taken, so a slow reader buffers a bounded amount.
   */
  readonly output: AsyncIterable<OutputChunk | OutputGap>;
  /** Resolves after the last output was taken or the handle was closed. Never rejects. */
  readonly ended: Promise<CommandEnd>;
  /** Resolves when the guest can take more. Rejects `failed_precondition` without `stdin` or `pty`. */
  write(data: Uint8Array): Promise<void>;
  closeStdin(): Promise<void>;
}

export interface ReadOptions extends CallOptions {
  offset?: number;
  length?: number;
}

/** `reach` acts with root's rights on behalf of the user, for callers who control the whole sandbox. */
export interface ReachOptions extends CallOptions {
  /**
   * New files and directories, parents included, belong to the user. After the first symlink that root does
   * not own, only the user's rights apply, so a process inside cannot redirect root with a symlink.
   */
  reach?: boolean;
}

export interface WriteOptions extends ReachOptions {
  mode?: number;
  /** Appends to the file in place instead of replacing it. */
  append?: boolean;
  /** Rejects `already_exists` if the path exists. */
  exclusive?: boolean;
  /**
   * Called with whether the file existed, before it is replaced: a watch has its event later. Not called for
   * `append`, nor by a guest of an earlier version.
   */
  onLook?: (exists: boolean) => void;
}

export interface ListOptions extends CallOptions {
  /** 1 lists the directory itself, 2 also its subdirectories, and so on. Default 1. */
  depth?: number;
}

export interface TarOptions extends CallOptions {
  /** Paths below the directory. Default: everything. */
  paths?: string[];
}

export interface Opened {
  info: FileInfo;
  data: AsyncIterable<Uint8Array>;
}

/**
 * Files of the sandbox, with the rights of one user. Every path is absolute. Symlinks are resolved inside the
 * sandbox. Errors carry `details.errno`, such as `ENOENT` for `not_found` and `ENOSPC` for
 * `resource_exhausted`.
 */
export interface Files {
  stat(path: string, options?: CallOptions & { follow?: boolean }): Promise<FileInfo>;
  /** Depth first, sorted by name. A symlink to a directory is listed, not followed. */
  list(path: string, options?: ListOptions): AsyncIterable<FileInfo>;
  read(path: string, options?: ReadOptions): Promise<Opened>;
  /**
   * Creates missing parents. Replaces the file atomically when all of `data` has arrived: readers see the old
   * content or the new, and a failure leaves the old.
   */
  write(
    path: string,
    data: AsyncIterable<Uint8Array> | Uint8Array,
    options?: WriteOptions,
  ): Promise<FileInfo>;
  /** Creates missing parents. Resolves false if the directory existed already. */
  mkdir(path: string, options?: ReachOptions & { mode?: number }): Promise<boolean>;
  /** Rejects `already_exists` unless `overwrite`. */
  move(from: string, to: string, options?: ReachOptions & { overwrite?: boolean }): Promise<void>;
  /** Rejects `not_found`, and `failed_precondition` for a directory that is not empty unless `recursive`. */
  remove(path: string, options?: ReachOptions & { recursive?: boolean }): Promise<void>;
  chmod(path: string, mode: number, options?: CallOptions & { recursive?: boolean }): Promise<void>;
  /** `owner` is `name`, `uid`, `name:group` or `uid:gid`. */
  chown(path: string, owner: string, options?: CallOptions & { recursive?: boolean }): Promise<void>;
  symlink(path: string, target: string, options?: CallOptions): Promise<void>;
  /** Extended attributes of the `user.` namespace, after setting those given (`null` removes one). */
  xattrs(
    path: string,
    set?: Record<string, Uint8Array | null>,
    options?: ReachOptions,
  ): Promise<Record<string, Uint8Array>>;
  /** Resolves when the watch is active; later changes are reported. Closing the iterator ends it. */
  watch(path: string, options?: CallOptions & { recursive?: boolean }): Promise<AsyncIterable<FileEvent>>;
  /** The tree below `path` as a tar stream (POSIX pax). */
  tar(path: string, options?: TarOptions): Promise<AsyncIterable<Uint8Array>>;
  /** Unpacks a tar stream below `path`, which is created. Rejects `invalid_argument` for an entry outside. */
  untar(
    path: string,
    data: AsyncIterable<Uint8Array>,
    options?: CallOptions,
  ): Promise<{ entries: number; bytes: number }>;
}

/** What the guest answers to a tool. All of it is hostile: `facts` are not validated beyond their types. */
export interface ToolAnswer {
  facts: CborMap;
  /** Text, or an image. At most 6 MiB. */
  data: Uint8Array;
}

/** A byte stream to a port inside the sandbox. */
export interface Connection extends AsyncDisposable {
  readonly readable: AsyncIterable<Uint8Array>;
  /** Resolves when more can be written. */
  write(data: Uint8Array): Promise<void>;
  /** Half-close: we send no more, the other side may. */
  end(): Promise<void>;
}

export interface ListeningPort {
  port: number;
  /** `127.0.0.1`, `0.0.0.0`, `::` and so on. */
  address: string;
}

export type PortEvent = { type: 'opened' | 'closed' } & ListeningPort;

export interface ConnectOptions extends CallOptions {
  /**
   * Over UDP: the connection carries datagrams, framed as `lib/datagram-frames.ts` says. Nothing has to
   * listen yet.
   */
  datagrams?: boolean;
}

export interface Ports {
  /** Rejects `unavailable` if no process listens on the port. */
  connect(port: number, options?: ConnectOptions): Promise<Connection>;
  list(options?: CallOptions): Promise<ListeningPort[]>;
  /** First the ports that are open now, as `opened`, then every change. */
  watch(options?: CallOptions): AsyncIterable<PortEvent>;
}

/**
 * A Guest runs commands, reads and writes files and connects to ports inside one sandbox.
 *
 * Behind it is the program that runs as PID 1 in every sandbox, reached over the frames of
 * `docs/reference/guest-protocol.md`; the memory backend implements it in TypeScript. Callers cannot tell
 * which.
 *
 * **Terms.** A *command* is a process with its descendants that was started by `exec`; it has an id that the
 * caller chose, and outlives every connection. A *handle* is one reader of a command. An *offset* counts the
 * bytes of a command's output from its start.
 *
 * **Who calls it, how often.** `Backend.connect` returns it; the control plane and the API call it for every
 * request about commands, files and ports of a sandbox.
 *
 * **Cost.** `exec`, `attach`, `signal` and the file methods each cost one round trip, and streams cost no
 * further ones.
 *
 * **Concurrency.** Any number of calls may run at once, up to 4,096 streams on a connection. Calls are
 * independent: a slow reader of one command delays neither other commands nor other calls.
 *
 * **Bounds.** The guest remembers the last 256 ended commands, and of their output 8 MiB in total. Each
 * command keeps 1 MiB of output by default (`keep`, at most 64 MiB). A request or answer has at most 1 MiB;
 * data is streamed. Calls with an immediate answer time out after 60 s.
 *
 * **Trust.** All data from a guest is hostile. It is bounded and validated before it reaches the caller. Show
 * text from a guest or pass it on; never use it as a path or a name on the host.
 *
 * **Errors.** When the connection to the sandbox is lost, pending calls reject with `unavailable`, and the
 * caller may repeat them (an `exec` with the same id does not start twice). Commands go on; when the sandbox
 * itself is gone they end as `lost`. An aborted signal rejects with `cancelled`, one of `AbortSignal.timeout`
 * with `deadline_exceeded`.
 *
 *     const guest = await backend.connect(sandbox);
 *     const make = { id: 'c1', argv: ['make'], env: {}, workdir: '/src', user: 'user' };
 *     await using command = await guest.exec(make);
 *     for await (const chunk of command.output) {
 *       if (chunk.channel !== 'gap') process.stdout.write(chunk.data);
 *     }
 *     const end = await command.ended;                       // { kind: 'exited', code: 0, … }
 *     const files = guest.files('user');
 *     await files.write('/tmp/note', Buffer.from('built'));
 *     const { data } = await files.read('/src/out.tar');
 *     await guest.forget('c1');
 */
export interface Guest {
  /**
   * Starts a command, or attaches from the start if `request.id` is known already.
   * Rejects `not_found` (`details.what` is `command`, `workdir` or `user`; a command that is not
   * found has `details.exitCode` 127) and `permission_denied` (not executable, 126).
   */
  exec(request: GuestExec, options?: CallOptions): Promise<CommandHandle>;
  /** Adds a reader from `offset` (default 0). Rejects `not_found`. Output before `keptFrom` is one gap. */
  attach(id: string, options?: CallOptions & { offset?: number }): Promise<CommandHandle>;
  /** Running commands, and ended ones that the guest still remembers, oldest first. */
  commands(options?: CallOptions): Promise<CommandInfo[]>;
  /**
   * Signals the command's process group; SIGKILL reaches all descendants. Rejects `not_found`, and
   * `failed_precondition` if the command has ended.
   */
  signal(id: string, signal: Signal, options?: CallOptions): Promise<void>;
  resize(id: string, size: PtySize, options?: CallOptions): Promise<void>;
  /**
   * Drops an ended command and its output. Does nothing for an unknown id. Rejects `failed_precondition`
   * while it runs.
   */
  forget(id: string, options?: CallOptions): Promise<void>;
  /** Files with the rights of `user`. Costs no round trip. */
  files(user: string): Files;
  /**
   * Runs one of the tools that need no process (`docs/reference/guest-protocol.md`, "Tools") with the rights
   * of `user`. Rejects `unsupported` where the guest has no such tool.
   */
  tool(user: string, request: CborMap & { name: string }, options?: CallOptions): Promise<ToolAnswer>;
  readonly ports: Ports;
}
