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
import type {
  CreateSandboxInput,
  Fork,
  Forked,
  PauseSandbox,
  MovedSandbox,
  SandboxSpace,
  StatsHistory,
  MoveSandbox,
  Sandbox as SandboxInfo,
  SandboxPage,
  SandboxStatus,
  Stats,
  ToolResult,
  UpdateSandbox,
  Validation,
} from './protocol/index.ts';
import type { CallOptions } from './sandbox-handle.ts';
import { SandboxSnapshots } from './sandbox-snapshots.ts';
import { ToolBox, type ToolOptions } from './tools.ts';
import { connect, type ConnectOptions, type Transport } from './transport.ts';

export interface ListOptions extends ConnectOptions, CallOptions {
  labels?: Record<string, string>;
  state?: SandboxInfo['state'];
}

export class Sandbox extends SandboxSnapshots implements AsyncDisposable {
  readonly files: Files;
  /** What it may reach outside. */
  readonly network: Network;
  /** Contexts in which code keeps its variables. */
  readonly interpreter: Interpreter;
  /** Agent tools: `sandbox.tools.grep({ pattern: 'TODO' })`. */
  readonly tools: ToolBox;

  private constructor(transport: Transport, info: SandboxInfo) {
    super(transport, info);
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

  /**
   * Runs code in a context that keeps its variables, and resolves with what came of it. What the code throws
   * is part of the answer.
   */
  runCode(code: string, options: RunCodeOptions & CodeListeners = {}): Promise<CodeExecution> {
    return this.interpreter.run(code, options);
  }

  /** Runs an agent tool by its name, in any dialect. Rejects only if there is no such call; see `isError`. */
  tool(name: string, input: Record<string, unknown>, options: ToolOptions = {}): Promise<ToolResult> {
    return this.tools.call(name, input, options);
  }

  /** How it and its commands stand, whatever has become of it. Wakes nothing. */
  status(options: CallOptions = {}): Promise<SandboxStatus> {
    return this.call('GET', '/status', options);
  }

  stats(options: CallOptions = {}): Promise<Stats> {
    return this.call('GET', '/stats', options);
  }

  /** What it used in the past, also while it does not run. Some hours are kept. */
  statsHistory({
    signal,
    ...query
  }: CallOptions & { sinceMs?: number; untilMs?: number } = {}): Promise<StatsHistory> {
    return this.transport.json('GET', `${this.base}/stats/history`, { signal, query });
  }

  /** What it takes on disk, in every state. */
  space(options: CallOptions = {}): Promise<SandboxSpace> {
    return this.call('GET', '/space', options);
  }

  async *watchStats({ intervalMs, signal }: CallOptions & { intervalMs?: number } = {}): AsyncGenerator<
    Stats,
    void,
    undefined
  > {
    yield* this.transport.lines<Stats>('GET', `${this.base}/stats/stream`, {
      query: { intervalMs },
      signal,
    });
  }

  /**
   * Moves it to another platform of the server. What cannot go along has to be allowed by `drop`; `dryRun`
   * only says what that is.
   */
  async move(
    platform: string,
    { signal, ...request }: CallOptions & Omit<MoveSandbox, 'platform'> = {},
  ): Promise<MovedSandbox> {
    const result = await this.call<MovedSandbox>('POST', '/move', {
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
    const { sandboxes } = await this.call<Forked>('POST', '/fork', {
      signal,
      headers,
      json: { count, ...request },
    });
    return sandboxes.map((info) => new Sandbox(this.transport, info));
  }

  /** Pauses it. The next call that needs it wakes it. */
  async pause({ signal, ...request }: CallOptions & PauseSandbox = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('POST', '/pause', { signal, json: request }));
  }

  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('POST', '/resume', options));
  }

  /** Keeps it from being idle for so long from now; 0 gives the lease back. */
  async lease(forMs: number, options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('POST', '/lease', { ...options, json: { forMs } }));
  }

  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('GET', '', options));
  }

  async update(changes: UpdateSandbox, options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('PATCH', '', { ...options, json: changes }));
  }

  async start(options: CallOptions = {}): Promise<SandboxInfo> {
    return (this.info = await this.call<SandboxInfo>('POST', '/start', options));
  }

  /**
   * Ends its processes, gracefully and then by force; keeps its files. `force` also where changes cannot be
   * written to buckets.
   */
  async stop({
    graceMs,
    force,
    ...options
  }: CallOptions & { graceMs?: number; force?: boolean } = {}): Promise<SandboxInfo> {
    const json = { graceMs, force };
    return (this.info = await this.call<SandboxInfo>('POST', '/stop', { ...options, json }));
  }

  /**
   * Removes it with all that it has. Gone already is done. Without `wait` it resolves when the server has
   * taken it on. `force` also where changes cannot be written to buckets.
   */
  async kill({
    wait = true,
    force = false,
    ...options
  }: CallOptions & { wait?: boolean; force?: boolean } = {}): Promise<void> {
    await this.call('DELETE', '', {
      ...options,
      ...(force && { query: { force } }),
      ...(!wait && { headers: { prefer: 'respond-async' } }),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
