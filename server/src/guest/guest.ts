/**
 * The Guest is the hands of a sandbox: commands, files and ports, from inside.
 *
 * Behind this interface is the program that runs as PID 1 in every sandbox, reached over the
 * frames of `docs/reference/guest-protocol.md`; the memory backend has one that is only
 * TypeScript. Whoever holds a Guest cannot tell which.
 *
 * All that comes from a guest is hostile: it is bounded and checked before it gets here, and
 * text from it is only ever shown or passed on, never used as a path or a name on the host.
 *
 * When the sandbox goes away every pending call rejects with `unavailable`, and every command
 * that was running ends as `lost`.
 */
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

export interface CallOptions {
  signal?: AbortSignal;
}

/** A request in which the sandbox's own defaults are already filled in. */
export interface GuestExec extends ExecRequest {
  id: string;
  env: Record<string, string>;
  workdir: string;
  user: string;
}

export interface OutputChunk {
  channel: OutputChannel;
  /** Of the first byte of `data` in the command's output. */
  offset: number;
  data: Uint8Array;
}

/** Output between `offset` and `offset + bytes` was dropped because nobody read it in time. */
export interface OutputGap {
  channel: 'gap';
  offset: number;
  bytes: number;
}

/**
 * A reader's hold on a command. Closing it, or aborting the signal it was made with, detaches;
 * the command goes on.
 */
export interface CommandHandle extends AsyncDisposable {
  readonly id: string;
  readonly pid: number;
  /** True if the id was known already, so that nothing was started. */
  readonly existing: boolean;
  /**
   * Output in order, from the offset that was asked for to the end. May be read once. The guest is
   * told to go on sending only as chunks are taken, so a slow reader holds a bounded amount.
   */
  readonly output: AsyncIterable<OutputChunk | OutputGap>;
  /** Settles once, after the last output was taken or the handle was closed; never rejects. */
  readonly ended: Promise<CommandEnd>;
  /** Resolves when the guest has room for more. Rejects `failed_precondition` without `stdin` or `pty`. */
  write(data: Uint8Array): Promise<void>;
  closeStdin(): Promise<void>;
}

export interface ReadOptions extends CallOptions {
  offset?: number;
  length?: number;
}

/**
 * Root's reach on behalf of the user, for callers that rule the whole sandbox: what is made, parents
 * included, is the user's. A symlink that is not root's leads only where the user's own rights do, so that
 * nobody inside can lead root astray.
 */
export interface ReachOptions extends CallOptions {
  reach?: boolean;
}

export interface WriteOptions extends ReachOptions {
  mode?: number;
  /** Adds to the file in place instead of replacing it. */
  append?: boolean;
  /** Rejects `already_exists` if the path is taken. */
  exclusive?: boolean;
}

export interface ListOptions extends CallOptions {
  /** 1 lists the directory itself, 2 also its subdirectories, and so on. Default 1. */
  depth?: number;
}

export interface TarOptions extends CallOptions {
  /** Paths below the directory; absent means all of it. */
  paths?: string[];
}

export interface Opened {
  info: FileInfo;
  data: AsyncIterable<Uint8Array>;
}

/**
 * Files as a user of the sandbox sees them. Every path is absolute; symlinks are followed inside
 * the sandbox, where they lead nowhere else. Errors carry `details.errno`.
 */
export interface Files {
  stat(path: string, options?: CallOptions & { follow?: boolean }): Promise<FileInfo>;
  /** Depth first, in the order of names. A symlink to a directory is listed, not entered. */
  list(path: string, options?: ListOptions): AsyncIterable<FileInfo>;
  read(path: string, options?: ReadOptions): Promise<Opened>;
  /**
   * Creates missing parents. Replaces the file in one step when all of `data` has arrived: a
   * reader sees the old content or the new, and a failure leaves the old and nothing else.
   */
  write(
    path: string,
    data: AsyncIterable<Uint8Array> | Uint8Array,
    options?: WriteOptions,
  ): Promise<FileInfo>;
  /** Creates missing parents. A directory that exists already is done; resolves whether it was made. */
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
  /** Resolves when the watch is in place; what happens from then on is seen. Closing the iterator ends it. */
  watch(path: string, options?: CallOptions & { recursive?: boolean }): Promise<AsyncIterable<FileEvent>>;
  /** The tree below `path` as a tar stream (POSIX pax). */
  tar(path: string, options?: TarOptions): Promise<AsyncIterable<Uint8Array>>;
  /**
   * Unpacks a tar stream below `path`, which is created. An entry that would leave it rejects
   * `invalid_argument`.
   */
  untar(
    path: string,
    data: AsyncIterable<Uint8Array>,
    options?: CallOptions,
  ): Promise<{ entries: number; bytes: number }>;
}

/** A byte stream to a port inside. */
export interface Connection extends AsyncDisposable {
  readonly readable: AsyncIterable<Uint8Array>;
  /** Resolves when there is room for more. */
  write(data: Uint8Array): Promise<void>;
  /** Ends our side; the other may go on. */
  end(): Promise<void>;
}

export interface ListeningPort {
  port: number;
  /** `127.0.0.1`, `0.0.0.0`, `::` and so on. */
  address: string;
}

export type PortEvent = { type: 'opened' | 'closed' } & ListeningPort;

export interface Ports {
  /** Rejects `unavailable` if nobody listens. */
  connect(port: number, options?: CallOptions): Promise<Connection>;
  list(options?: CallOptions): Promise<ListeningPort[]>;
  /** Those that listen now as `opened`, then every change. */
  watch(options?: CallOptions): AsyncIterable<PortEvent>;
}

export interface Guest {
  /**
   * Starts a command, or attaches from the start if `request.id` is known already.
   * Rejects `not_found` (`details.what` is `command`, `workdir` or `user`; a command that is not
   * found has `details.exitCode` 127) and `permission_denied` (not executable, 126).
   */
  exec(request: GuestExec, options?: CallOptions): Promise<CommandHandle>;
  /** Rejects `not_found`. Output before `keptFrom` is reported as a gap. */
  attach(id: string, options?: CallOptions & { offset?: number }): Promise<CommandHandle>;
  /** Running commands and the ended ones that are still remembered, oldest first. */
  commands(options?: CallOptions): Promise<CommandInfo[]>;
  /**
   * To the command's process group; SIGKILL goes to the whole tree. Rejects `not_found`,
   * `failed_precondition` if it has ended.
   */
  signal(id: string, signal: Signal, options?: CallOptions): Promise<void>;
  resize(id: string, size: PtySize, options?: CallOptions): Promise<void>;
  /** Forgets an ended command and its output. Unknown is done; rejects `failed_precondition` if it runs. */
  forget(id: string, options?: CallOptions): Promise<void>;
  /** Files as `user` may see and change them. */
  files(user: string): Files;
  readonly ports: Ports;
}
