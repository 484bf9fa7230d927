import {
  MastraSandbox,
  SandboxAbortError,
  SandboxNotReadyError,
  type MastraSandboxOptions,
  type ProviderStatus,
  type SandboxCloneOptions,
  type SandboxFileInput,
  type SandboxInfo,
  type SandboxNetworking,
  type SandboxStartOptions,
  type WriteFilesOptions,
} from '@mastra/core/workspace';
import {
  connect,
  isCayError,
  Sandbox,
  type ConnectOptions,
  type CreateSandboxInput,
  type Snapshot,
  type SnapshotPage,
} from '@cay/sdk';
import { createHash, randomUUID } from 'node:crypto';
import { CayProcessManager } from './processes.ts';

const CHECKPOINT = 'mastra.checkpoint';
const MINUTE_MS = 60_000;

type Create = Pick<
  CreateSandboxInput,
  'template' | 'limits' | 'network' | 'timeoutMs' | 'onTimeout' | 'idle' | 'labels'
>;

export interface CaySandboxOptions extends Omit<MastraSandboxOptions, 'processes'>, ConnectOptions, Create {
  /** The sandbox of this id is taken if there is one. Default: a new one. */
  id?: string;
  /** A sandbox of Cay by its own id or name, which is taken as it is. */
  sandboxId?: string;
  /** The checkpoint that `snapshot` writes, and that a new sandbox starts from. Default: of the id. */
  checkpointName?: string;
  /** The checkpoint that a new sandbox starts from while it has none of its own. */
  seedCheckpointName?: string;
}

export class CaySandbox extends MastraSandbox<Sandbox> {
  readonly id: string;
  readonly name = 'CaySandbox';
  readonly provider = 'cay';
  declare readonly processes: CayProcessManager;
  status: ProviderStatus = 'pending';
  override readonly supportsCheckpoints = true;
  override readonly networking: SandboxNetworking = {
    getPortUrl: async (port) =>
      this.#sandbox && this.status === 'running' ? (await this.#sandbox.expose(port)).openUrl : null,
  };
  readonly #options: CaySandboxOptions;
  #sandbox: Sandbox | undefined;

  constructor(options: CaySandboxOptions = {}) {
    const { onStart, onStop, onDestroy, env, workingDirectory } = options;
    super({
      name: 'CaySandbox',
      onStart,
      onStop,
      onDestroy,
      env,
      workingDirectory,
      processes: new CayProcessManager(),
    });
    this.id = options.id ?? `cay-${randomUUID()}`;
    this.#options = options;
  }

  /** The sandbox of Cay, for what Mastra has no words for: turns, forks, the network. */
  get sandbox(): Sandbox {
    if (!this.#sandbox) throw new SandboxNotReadyError(this.id);
    return this.#sandbox;
  }

  protected override async find(options?: SandboxStartOptions): Promise<Sandbox | undefined> {
    const { sandboxId } = this.#options;
    try {
      return await Sandbox.connect(sandboxId ?? nameOf(this.id), this.#access(options));
    } catch (error) {
      // One that was named must be there.
      if (sandboxId === undefined && isCayError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  protected override async connect(
    sandbox: Sandbox,
    { abortSignal }: SandboxStartOptions = {},
  ): Promise<void> {
    const { state } = sandbox.info;
    if (state === 'stopped' || state === 'failed') await sandbox.start({ signal: abortSignal });
    else if (state === 'paused') await sandbox.resume({ signal: abortSignal });
    this.#sandbox = sandbox;
  }

  protected override async create(options: SandboxStartOptions = {}): Promise<void> {
    const { template, limits, network, timeoutMs, onTimeout, idle, labels } = this.#options;
    const checkpoint = await this.#checkpoint(options);
    const given = { limits, network, timeoutMs, onTimeout, idle, labels, ...(!checkpoint && { template }) };
    const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    this.#sandbox = await Sandbox.create(
      // Another program may make it at the same moment.
      {
        ...defined,
        name: nameOf(this.id),
        getOrCreate: true,
        ...(checkpoint && { snapshot: checkpoint.id }),
      },
      this.#access(options),
    );
  }

  /** Keeps files, and processes where the isolation can. The next command starts it again. */
  override async stop(): Promise<void> {
    this.processes.detachAll();
    await this.#sandbox?.pause().catch(ignoreGone);
  }

  override async destroy(): Promise<void> {
    this.processes.detachAll();
    await (this.#sandbox ?? (await this.find().catch(ignoreGone)))?.kill();
    this.#sandbox = undefined;
  }

  /** Writes the checkpoint: the files as they are now. The one before goes. */
  override async snapshot(): Promise<void> {
    await this.ensureRunning();
    const name = this.#checkpointName;
    const before = await this.#checkpoints(name);
    await this.sandbox.snapshot({ labels: { [CHECKPOINT]: hashOf(name) } });
    for (const { id } of before)
      // A sandbox may have been made from it.
      await this.sandbox.removeSnapshot(id).catch(() => {});
  }

  clone(options: SandboxCloneOptions = {}): CaySandbox {
    const { id, sandboxId, env, workingDirectory, idleTimeoutMinutes, checkpointName, seedCheckpointName } =
      options;
    const { id: _, sandboxId: __, checkpointName: ___, ...inherited } = this.#options;
    return new CaySandbox({
      ...inherited,
      ...(id !== undefined && { id }),
      ...(sandboxId !== undefined && { sandboxId }),
      env: { ...this.getEnv(), ...env },
      ...(workingDirectory !== undefined && { workingDirectory }),
      ...(idleTimeoutMinutes !== undefined && { timeoutMs: idleTimeoutMinutes * MINUTE_MS }),
      ...(checkpointName !== undefined && { checkpointName }),
      ...(seedCheckpointName !== undefined && { seedCheckpointName }),
    });
  }

  override async writeFiles(
    files: SandboxFileInput[],
    { abortSignal }: WriteFilesOptions = {},
  ): Promise<void> {
    for (const { path, mode } of files)
      if (mode !== undefined && (!Number.isInteger(mode) || mode < 1 || mode > 0o777))
        throw new RangeError(`Cannot write "${path}": the mode must be from 0o001 to 0o777`);
    await this.ensureRunning();
    for (const { path, content, mode } of files)
      await this.sandbox.files.write(path, content, { mode, signal: abortSignal }).catch((error: unknown) => {
        throw abortSignal?.aborted ? new SandboxAbortError(`write files to ${this.id}`) : error;
      });
  }

  override async getInfo(): Promise<SandboxInfo> {
    const info = await this.#sandbox?.refresh().catch(ignoreGone);
    return {
      id: this.id,
      name: this.name,
      provider: this.provider,
      status: this.status,
      createdAt: new Date(info?.createdAtMs ?? Date.now()),
      ...(info?.usedAtMs != null && { lastUsedAt: new Date(info.usedAtMs) }),
      ...(info?.expiresAtMs != null && { timeoutAt: new Date(info.expiresAtMs) }),
      ...(info && {
        resources: {
          cpuCores: info.limits.cpus ?? undefined,
          memoryMB: Math.floor((info.limits.memoryBytes ?? 0) / 1024 ** 2),
        },
        metadata: { sandboxId: info.id, runtime: info.runtime, turn: info.turn },
      }),
    };
  }

  override getInstructions(): string {
    const { workdir = '/home/user', user = 'user' } = this.#sandbox?.info ?? {};
    return `Linux sandbox. Commands run with bash as "${user}" in ${this.workingDirectory ?? workdir}. Files stay. The network reaches only what the policy of the sandbox allows.`;
  }

  /** Whether the sandbox is not there any more, so that it has to be started again. */
  async isGone(): Promise<boolean> {
    const info = await this.#sandbox?.refresh().catch(ignoreGone);
    const gone = info?.state !== 'active' && info?.state !== 'paused';
    if (gone) this.status = 'stopped';
    return gone;
  }

  get #checkpointName(): string {
    return this.#options.checkpointName ?? this.id;
  }

  async #checkpoint(options: SandboxStartOptions): Promise<Snapshot | undefined> {
    const { seedCheckpointName } = this.#options;
    const [own] = await this.#checkpoints(this.#checkpointName, options);
    if (own || seedCheckpointName === undefined) return own;
    return (await this.#checkpoints(seedCheckpointName, options))[0];
  }

  async #checkpoints(name: string, options: SandboxStartOptions = {}): Promise<Snapshot[]> {
    const { snapshots } = await connect(this.#access()).json<SnapshotPage>('GET', '/v1/snapshots', {
      query: { label: `${CHECKPOINT}=${hashOf(name)}` },
      signal: options.abortSignal,
    });
    return snapshots;
  }

  #access({ abortSignal }: SandboxStartOptions = {}): ConnectOptions & { signal?: AbortSignal } {
    const { url, apiKey, fetch, WebSocket } = this.#options;
    return { url, apiKey, fetch, WebSocket, signal: abortSignal };
  }
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex').slice(0, 32);
/** Ids may have characters that names have not. */
const nameOf = (id: string) => `mastra-${hashOf(id)}`;

function ignoreGone(error: unknown): undefined {
  if (!isCayError(error, 'not_found')) throw error;
}
