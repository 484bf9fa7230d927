import {
  normalizeSandboxClientCreateArgs,
  SandboxUnsupportedFeatureError,
  type Manifest,
  type SandboxArchiveLimits,
  type SandboxClient,
  type SandboxClientCreateArgs,
  type SandboxClientOptions,
  type SandboxClientResumeOptions,
} from '@openai/agents-core/sandbox';
import {
  deserializeManifest,
  isRecord,
  materializeEnvironment,
  readOptionalNumber,
  readString,
  rehydratePersistedEnvironmentForRuntime,
  serializeManifestRecord,
  serializeRuntimeEnvironmentForPersistence,
} from '@openai/agents-core/sandbox/internal';
import { Sandbox, type ConnectOptions, type CreateSandboxInput } from '@cay/sdk';
import { asProviderError } from './errors.ts';
import { refuseUnsupported } from './manifest.ts';
import { CaySandboxSession, type CaySessionState } from './session.ts';

type Create = Pick<
  CreateSandboxInput,
  'template' | 'limits' | 'network' | 'timeoutMs' | 'onTimeout' | 'labels'
>;

export interface CaySandboxClientOptions extends SandboxClientOptions, ConnectOptions, Create {
  /** Variables of every command, beside those of the manifest. */
  env?: Record<string, string>;
  /** Ports that can be resolved. Each has a token in its query. */
  exposedPorts?: number[];
  /**
   * What the workspace is kept as between runs: its files as a tar, or a snapshot of the sandbox. Default:
   * tar.
   */
  workspacePersistence?: 'tar' | 'snapshot';
  archiveLimits?: SandboxArchiveLimits | null;
}

export class CaySandboxClient implements SandboxClient<CaySandboxClientOptions, CaySessionState> {
  readonly backendId = 'cay';
  readonly #options: CaySandboxClientOptions;

  constructor(options: CaySandboxClientOptions = {}) {
    this.#options = options;
  }

  async create(
    args?: SandboxClientCreateArgs<CaySandboxClientOptions> | Manifest,
    manifestOptions?: CaySandboxClientOptions,
  ): Promise<CaySandboxSession> {
    const given = normalizeSandboxClientCreateArgs(args, manifestOptions);
    const { manifest, snapshot } = given;
    if (snapshot !== undefined && snapshot.type !== 'noop')
      throw new SandboxUnsupportedFeatureError(
        'CaySandboxClient takes no snapshot of the framework. Resume a session, or use workspacePersistence: "snapshot".',
        { provider: 'cay', feature: 'snapshot' },
      );
    refuseUnsupported(manifest);
    const options = { ...this.#options, ...given.options };
    const environment = await materializeEnvironment(manifest, options.env);
    const sandbox = await asProviderError('create a sandbox', () => this.#create(options, environment));
    const session = this.#session(
      sandbox,
      {
        manifest,
        sandboxId: sandbox.id,
        environment,
        workspacePersistence: options.workspacePersistence ?? 'tar',
        configuredExposedPorts: options.exposedPorts ?? [],
        lastProcess: 0,
      },
      given.archiveLimits ?? options.archiveLimits,
    );
    try {
      await session.prepare();
      await session.applyManifest(manifest);
    } catch (error) {
      await sandbox.kill().catch(() => {});
      throw error;
    }
    return session;
  }

  /**
   * The sandbox goes on where it was, also if it was paused or stopped, with its processes if they were kept.
   */
  async resume(
    state: CaySessionState,
    { archiveLimits, clientOptions }: SandboxClientResumeOptions<CaySandboxClientOptions> = {},
  ): Promise<CaySandboxSession> {
    const options = { ...this.#options, ...clientOptions };
    const sandbox = await asProviderError(`resume sandbox "${state.sandboxId}"`, async () => {
      const found = await Sandbox.connect(state.sandboxId, accessOf(options));
      if (found.info.state === 'stopped') await found.start();
      return found;
    });
    return this.#session(sandbox, state, archiveLimits ?? options.archiveLimits);
  }

  async delete(state: CaySessionState): Promise<void> {
    await asProviderError(`remove sandbox "${state.sandboxId}"`, async () => {
      const sandbox = await Sandbox.connect(state.sandboxId, accessOf(this.#options)).catch(ignoreMissing);
      await sandbox?.kill();
    });
  }

  /** Values of variables that the manifest calls ephemeral are not in it. */
  async serializeSessionState(state: CaySessionState): Promise<Record<string, unknown>> {
    return {
      ...state,
      manifest: serializeManifestRecord(state.manifest),
      environment: serializeRuntimeEnvironmentForPersistence(state.manifest, state.environment),
    };
  }

  async deserializeSessionState(state: Record<string, unknown>): Promise<CaySessionState> {
    const manifest = deserializeManifest(state['manifest'] as Record<string, unknown>);
    const kept = isRecord(state['environment']) ? (state['environment'] as Record<string, string>) : {};
    const ports = state['configuredExposedPorts'];
    return {
      ...state,
      manifest,
      sandboxId: readString(state, 'sandboxId'),
      environment: await rehydratePersistedEnvironmentForRuntime(manifest, kept, this.#options.env),
      workspacePersistence: state['workspacePersistence'] === 'snapshot' ? 'snapshot' : 'tar',
      configuredExposedPorts: Array.isArray(ports) ? ports.map(Number) : [],
      lastProcess: readOptionalNumber(state, 'lastProcess') ?? 0,
    };
  }

  /** An owned sandbox that a run leaves behind is paused, not removed: see `CaySandboxSession.delete`. */
  canPersistOwnedSessionState(): boolean {
    return true;
  }

  canReusePreservedOwnedSession(): boolean {
    return true;
  }

  #session(
    sandbox: Sandbox,
    state: CaySessionState,
    archiveLimits: SandboxArchiveLimits | null | undefined,
  ): CaySandboxSession {
    const again = (snapshot: string) =>
      this.#create(
        { ...this.#options, exposedPorts: state.configuredExposedPorts },
        state.environment,
        snapshot,
      );
    return new CaySandboxSession({ sandbox, state, archiveLimits, again });
  }

  #create(
    options: CaySandboxClientOptions,
    env: Record<string, string>,
    snapshot?: string,
  ): Promise<Sandbox> {
    const { template, limits, network, timeoutMs, onTimeout, labels, exposedPorts = [] } = options;
    const given = {
      limits,
      network,
      timeoutMs,
      onTimeout,
      labels,
      ...(snapshot === undefined && { template }),
    };
    const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    return Sandbox.create(
      {
        ...defined,
        env,
        ports: [...exposedPorts],
        ...(snapshot !== undefined && { snapshot: snapshot as `snap_${string}` }),
      },
      accessOf(options),
    );
  }
}

function accessOf({ url, apiKey, fetch, WebSocket }: ConnectOptions): ConnectOptions {
  return { url, apiKey, fetch, WebSocket };
}

function ignoreMissing(error: { code?: string }): undefined {
  if (error.code !== 'not_found') throw error;
}
