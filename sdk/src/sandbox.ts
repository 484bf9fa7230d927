/**
 * A sandbox, from outside.
 *
 *     await using sandbox = await Sandbox.create();
 *     const { stdout } = await sandbox.exec('python3 -c "print(6*7)"');
 *     await sandbox.files.write('/home/user/a.txt', 'hello');
 *
 * At the end of an `await using` block the sandbox is removed.
 */
import { Files } from './files.ts';
import { Interpreter, type CodeExecution, type CodeListeners, type RunCodeOptions } from './interpreter.ts';
import { Network } from './network.ts';
import { openProcess, type Process } from './process.ts';
import type {
  CommandInfo,
  CreateSandboxInput,
  DiffStat,
  ExecBody,
  ExecEvent,
  ExecRequest,
  ExecResult,
  ExposedPort,
  PortList,
  PublishedPort,
  PublishPortInput,
  FileChange,
  Fork,
  Forked,
  Launched,
  OutputEncoding,
  PauseSandbox,
  PtySize,
  MovedSandbox,
  SandboxSpace,
  StatsHistory,
  MoveSandbox,
  RolledBack,
  Sandbox as SandboxInfo,
  SandboxPage,
  SandboxStatus,
  Signal,
  Snapshot,
  SnapshotPage,
  SnapshotRef,
  SnapshotTree,
  Stats,
  TakeSnapshot,
  TakeTurn,
  ToolResult,
  UpdateSandbox,
  Validation,
  Waited,
} from './protocol/index.ts';
import { ToolBox, type ToolOptions } from './tools.ts';
import { connect, type ConnectOptions, type Transport } from './transport.ts';
import { waitForCommand, type WaitOptions } from './wait.ts';

interface CallOptions {
  signal?: AbortSignal;
}

interface RunOptions extends CallOptions, Partial<Omit<ExecBody, 'argv' | 'shell'>> {
  /** The command is run once, however often the call is repeated with the same key. */
  idempotencyKey?: string;
}

/** A shell line, a program with its arguments, or everything that a command may be given. */
export type Command = string | string[] | ExecBody;

export interface LogsOptions extends CallOptions {
  command?: string;
  /** Goes on until the command ends. */
  follow?: boolean;
  /** Begins at this byte of its output. */
  offset?: number;
  /**
   * Begins with what the server has recorded then or later. Rejects `failed_precondition` for a command that
   * is not recorded.
   */
  since?: Date;
  /** Begins so many bytes before the end. */
  tailBytes?: number;
  /** Stops after so many bytes, without the event `end`. */
  limitBytes?: number;
  /** `base64` for output that is not text. */
  encoding?: OutputEncoding;
}

export interface ListOptions extends ConnectOptions, CallOptions {
  labels?: Record<string, string>;
  state?: SandboxInfo['state'];
}

export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly files: Files;
  /** What it may reach outside. */
  readonly network: Network;
  /** Contexts in which code keeps its variables. */
  readonly interpreter: Interpreter;
  /** Agent tools: `sandbox.tools.grep({ pattern: 'TODO' })`. */
  readonly tools: ToolBox;
  readonly #transport: Transport;
  /** The last answer of the server; `refresh` asks again. */
  info: SandboxInfo;

  private constructor(transport: Transport, info: SandboxInfo) {
    this.#transport = transport;
    this.id = info.id;
    this.info = info;
    this.files = new Files(transport, info.id, info.workdir);
    this.network = new Network(transport, info.id);
    this.interpreter = new Interpreter(transport, info.id);
    this.tools = new ToolBox(transport, info.id);
  }

  /** Makes a sandbox and resolves when it answers. The idempotency key makes repeating this safe. */
  static async create(
    request: CreateSandboxInput = {},
    options: ConnectOptions & CallOptions & { idempotencyKey?: string } = {},
  ): Promise<Sandbox> {
    const transport = connect(options);
    const headers =
      options.idempotencyKey === undefined ? undefined : { 'idempotency-key': options.idempotencyKey };
    return new Sandbox(
      transport,
      await transport.json('POST', '/v1/sandboxes', { json: request, headers, signal: options.signal }),
    );
  }

  /**
   * What would become of a create: which platform would be chosen, and what would be refused or not be
   * honoured. Makes nothing.
   */
  static validate(
    request: CreateSandboxInput = {},
    options: ConnectOptions & CallOptions = {},
  ): Promise<Validation> {
    return connect(options).json('POST', '/v1/validate', { json: request, signal: options.signal });
  }

  /** A sandbox that exists, by its id or its name. */
  static async connect(ref: string, options: ConnectOptions & CallOptions = {}): Promise<Sandbox> {
    const transport = connect(options);
    return new Sandbox(
      transport,
      await transport.json('GET', `/v1/sandboxes/${encodeURIComponent(ref)}`, { signal: options.signal }),
    );
  }

  /** All sandboxes of the key's project, newest first. */
  static async *list({ labels = {}, state, signal, ...options }: ListOptions = {}): AsyncGenerator<
    Sandbox,
    void,
    undefined
  > {
    const transport = connect(options);
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    let cursor: string | undefined;
    do {
      const page = await transport.json<SandboxPage>('GET', '/v1/sandboxes', {
        query: { label, state, cursor },
        signal,
      });
      for (const info of page.sandboxes) yield new Sandbox(transport, info);
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Runs a command to its end. Its exit code is part of the answer, whatever it is. */
  exec(command: Command, options: RunOptions = {}): Promise<ExecResult> {
    return this.#json('POST', '/exec', callOf(command, options));
  }

  /** The same, event by event. */
  async *execStream(command: Command, options: RunOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    yield* this.#transport.lines<ExecEvent>('POST', `${this.#base}/exec`, callOf(command, options));
  }

  /**
   * Runs code in a context that keeps its variables, and resolves with what came of it. What the code throws
   * is part of the answer.
   */
  runCode(code: string, options: RunCodeOptions & CodeListeners = {}): Promise<CodeExecution> {
    return this.interpreter.run(code, options);
  }

  /** Starts a command and stays connected to it: output, input, signals. */
  async spawn(
    command: Command,
    options: CallOptions & Partial<Omit<ExecRequest, 'argv' | 'shell'>> = {},
  ): Promise<Process> {
    const { signal, ...rest } = options;
    return openProcess(await this.#transport.socket(`${this.#base}/exec`, { signal }), {
      exec: { ...bodyOf(command), ...rest },
    });
  }

  /** A terminal: a login shell unless another command is given. */
  shell(size: PtySize, options: CallOptions & Partial<ExecRequest> = {}): Promise<Process> {
    const { signal, ...rest } = options;
    return this.spawn({ argv: ['/bin/bash', '-l'], ...rest, pty: size } as ExecBody, { signal });
  }

  /** Connects to a command that was started before. */
  async attach(id: string, { offset = 0, signal }: CallOptions & { offset?: number } = {}): Promise<Process> {
    return openProcess(
      await this.#transport.socket(`${this.#base}/exec`, { signal }),
      { attach: { id, offset } },
      offset,
    );
  }

  /** Starts a command in the background. */
  launch(command: Command, options: RunOptions = {}): Promise<Launched> {
    return this.#json('POST', '/commands', callOf(command, options));
  }

  async commands(options: CallOptions = {}): Promise<CommandInfo[]> {
    return (await this.#json<{ commands: CommandInfo[] }>('GET', '/commands', options)).commands;
  }

  command(id: string, options: CallOptions = {}): Promise<CommandInfo> {
    return this.#json('GET', `/commands/${encodeURIComponent(id)}`, options);
  }

  /**
   * A command's output that is kept, both streams in the order in which they were read: of the command that
   * the sandbox was created with, else of the one started last. Nothing if there is none.
   */
  async *logs({ command, follow = false, since, signal, ...query }: LogsOptions = {}): AsyncGenerator<
    ExecEvent,
    void,
    undefined
  > {
    const id = command ?? usual(await this.commands({ signal }));
    if (id === undefined) return;
    const path = `${this.#base}/commands/${encodeURIComponent(id)}/output`;
    yield* this.#transport.lines<ExecEvent>('GET', path, {
      query: { ...query, follow, since: since?.toISOString() },
      signal,
    });
  }

  /** How it and its commands stand, whatever has become of it. Wakes nothing. */
  status(options: CallOptions = {}): Promise<SandboxStatus> {
    return this.#json('GET', '/status', options);
  }

  /**
   * Waits for the end of a command: `completed` with the end that it had, `timed_out`, or `lost` if the
   * end is unknown. Reconnects when the connection is lost or the server restarts.
   */
  wait(options: WaitOptions = {}): Promise<Waited> {
    return waitForCommand(this.#transport, this.#base, options);
  }

  async signal(commandId: string, signal: Signal, options: CallOptions = {}): Promise<void> {
    await this.#json('POST', `/commands/${encodeURIComponent(commandId)}/signal`, {
      ...options,
      json: { signal },
    });
  }

  /** Runs an agent tool by its name, in any dialect. Rejects only if there is no such call; see `isError`. */
  tool(name: string, input: Record<string, unknown>, options: ToolOptions = {}): Promise<ToolResult> {
    return this.tools.call(name, input, options);
  }

  /** Makes a port reachable from outside; `url` and, if it is private, `token` say how. */
  async expose(
    port: number,
    { visibility = 'private', ...options }: CallOptions & { visibility?: ExposedPort['visibility'] } = {},
  ): Promise<ExposedPort> {
    return this.#json('PUT', `/ports/${port}`, { ...options, json: { visibility } });
  }

  async unexpose(port: number, options: CallOptions = {}): Promise<void> {
    await this.#json('DELETE', `/ports/${port}`, options);
  }

  /** Ports that listen inside, that are exposed, and that are published. */
  ports(options: CallOptions = {}): Promise<PortList> {
    return this.#json('GET', '/ports', options);
  }

  /** Makes a port of the server's machine lead to a port inside, without a key. It stays while the sandbox exists. */
  publish(wanted: PublishPortInput, options: CallOptions = {}): Promise<PublishedPort> {
    return this.#json('POST', '/published', { ...options, json: wanted });
  }

  async unpublish(hostPort: number, options: CallOptions = {}): Promise<void> {
    await this.#json('DELETE', `/published/${hostPort}`, options);
  }

  /** A raw TCP connection to a port inside, as binary WebSocket messages. */
  tcp(port: number, options: CallOptions = {}): Promise<WebSocket> {
    return this.#transport.socket(`${this.#base}/ports/${port}/tcp`, options);
  }

  stats(options: CallOptions = {}): Promise<Stats> {
    return this.#json('GET', '/stats', options);
  }

  /** What it used in the past, also while it does not run. Some hours are kept. */
  statsHistory({
    signal,
    ...query
  }: CallOptions & { sinceMs?: number; untilMs?: number } = {}): Promise<StatsHistory> {
    return this.#transport.json('GET', `${this.#base}/stats/history`, { signal, query });
  }

  /** What it takes on disk, in every state. */
  space(options: CallOptions = {}): Promise<SandboxSpace> {
    return this.#json('GET', '/space', options);
  }

  async *watchStats({ intervalMs, signal }: CallOptions & { intervalMs?: number } = {}): AsyncGenerator<
    Stats,
    void,
    undefined
  > {
    yield* this.#transport.lines<Stats>('GET', `${this.#base}/stats/stream`, {
      query: { intervalMs },
      signal,
    });
  }

  /** Keeps what the sandbox is now: its files, and with `memory` its processes. It goes on meanwhile. */
  snapshot({ signal, ...request }: CallOptions & TakeSnapshot = {}): Promise<Snapshot> {
    return this.#json('POST', '/snapshots', { signal, json: request });
  }

  /** Waits for running commands, keeps what the sandbox is, and gives it the next number. */
  turn({ signal, ...request }: CallOptions & TakeTurn = {}): Promise<Snapshot> {
    return this.#json('POST', '/turns', { signal, json: request });
  }

  /** Its snapshots and turns, newest first. */
  async *snapshots({ signal }: CallOptions = {}): AsyncGenerator<Snapshot, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.#transport.json<SnapshotPage>('GET', `${this.#base}/snapshots`, {
        query: { cursor },
        signal,
      });
      yield* page.snapshots;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** Refused while there is a sandbox or a template that was made from it. */
  async removeSnapshot(snapshot: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.json('DELETE', `/v1/snapshots/${encodeURIComponent(snapshot)}`, options);
  }

  /**
   * Goes back to a snapshot, its name, or a turn's number. What was there becomes a snapshot first, so this
   * can be undone.
   */
  async rollback(
    to: SnapshotRef,
    { signal, memory, force }: CallOptions & { memory?: boolean; force?: boolean } = {},
  ): Promise<RolledBack> {
    const result = await this.#json<RolledBack>('POST', '/rollback', { signal, json: { to, memory, force } });
    this.info = result.sandbox;
    return result;
  }

  /**
   * Moves it to another platform of the server. What cannot go along has to be allowed by `drop`; `dryRun` only
   * says what that is.
   */
  async move(
    platform: string,
    { signal, ...request }: CallOptions & Omit<MoveSandbox, 'platform'> = {},
  ): Promise<MovedSandbox> {
    const result = await this.#json<MovedSandbox>('POST', '/move', {
      signal,
      json: { platform, ...request },
    });
    this.info = result.sandbox;
    return result;
  }

  /**
   * Sandboxes that go on from what this one is, with its processes where the isolation can. This one goes on
   * too.
   */
  async fork(
    count = 1,
    {
      signal,
      idempotencyKey,
      ...request
    }: CallOptions & Omit<Fork, 'count'> & { idempotencyKey?: string } = {},
  ) {
    const headers = idempotencyKey === undefined ? undefined : { 'idempotency-key': idempotencyKey };
    const { sandboxes } = await this.#json<Forked>('POST', '/fork', {
      signal,
      headers,
      json: { count, ...request },
    });
    return sandboxes.map((info) => new Sandbox(this.#transport, info));
  }

  /** What has changed, path by path. */
  async *diff(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths }: CallOptions & { paths?: string[] } = {},
  ) {
    yield* this.#transport.lines<FileChange>('GET', `${this.#base}/diff`, {
      query: { from, to, path: paths },
      signal,
    });
  }

  /** How much has changed, in files and lines. */
  diffStat(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths }: CallOptions & { paths?: string[] } = {},
  ): Promise<DiffStat> {
    return this.#transport.json('GET', `${this.#base}/diff`, {
      query: { from, to, path: paths, format: 'stat' },
      signal,
    });
  }

  /** What has changed as a patch that `git apply` takes in `relative`, which is the root if absent. */
  async patch(
    from: SnapshotRef,
    to: SnapshotRef = 'now',
    { signal, paths, relative }: CallOptions & { paths?: string[]; relative?: string } = {},
  ): Promise<Response> {
    return this.#transport.request('GET', `${this.#base}/diff`, {
      query: { from, to, path: paths, format: 'patch', relative },
      signal,
    });
  }

  /** Files of a snapshot, a turn, or now, as a tar stream. */
  async export({
    signal,
    at = 'now',
    paths,
  }: CallOptions & { at?: SnapshotRef; paths?: string[] } = {}): Promise<Response> {
    return this.#transport.request('GET', `${this.#base}/export`, { query: { at, path: paths }, signal });
  }

  /** The snapshots of this sandbox and of its forks, and who stands where. */
  tree(options: CallOptions = {}): Promise<SnapshotTree> {
    return this.#json('GET', '/tree', options);
  }

  /** Pauses it. The next call that needs it wakes it. */
  async pause({ signal, ...request }: CallOptions & PauseSandbox = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('POST', '/pause', { signal, json: request }));
  }

  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('POST', '/resume', options));
  }

  /** Keeps it from being idle for so long from now; 0 gives the lease back. */
  async lease(forMs: number, options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('POST', '/lease', { ...options, json: { forMs } }));
  }

  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('GET', '', options));
  }

  async update(changes: UpdateSandbox, options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('PATCH', '', { ...options, json: changes }));
  }

  async start(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('POST', '/start', options));
  }

  /** Ends its processes, gracefully and then by force; keeps its files. */
  async stop({ graceMs, ...options }: CallOptions & { graceMs?: number } = {}): Promise<SandboxInfo> {
    return (this.info = await this.#json<SandboxInfo>('POST', '/stop', { ...options, json: { graceMs } }));
  }

  /**
   * Removes it with all that it has. Gone already is done. Without `wait` it resolves when the server has
   * taken it on.
   */
  async kill({ wait = true, ...options }: CallOptions & { wait?: boolean } = {}): Promise<void> {
    await this.#json('DELETE', '', { ...options, ...(!wait && { headers: { prefer: 'respond-async' } }) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  get #base(): string {
    return `/v1/sandboxes/${this.id}`;
  }

  #json<T>(
    method: string,
    path: string,
    options: CallOptions & { json?: unknown; headers?: Record<string, string> } = {},
  ): Promise<T> {
    return this.#transport.json<T>(method, `${this.#base}${path}`, options);
  }
}

/** The id is the one of a sandbox's own command. */
function usual(commands: readonly CommandInfo[]): string | undefined {
  return (commands.find(({ id }) => id === 'main') ?? commands.at(-1))?.id;
}

function bodyOf(command: Command): Partial<ExecBody> {
  if (typeof command === 'string') return { shell: command };
  return Array.isArray(command) ? { argv: command } : command;
}

function callOf(command: Command, { signal, idempotencyKey, ...rest }: RunOptions) {
  const headers = idempotencyKey === undefined ? undefined : { 'idempotency-key': idempotencyKey };
  return { json: { ...bodyOf(command), ...rest }, headers, signal };
}
