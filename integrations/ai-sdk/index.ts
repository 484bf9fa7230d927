/**
 * @module Cay as a sandbox provider of the AI SDK (`harness-sandbox-v1`).
 *
 *     const agent = new HarnessAgent({ harness, sandbox: createCaySandbox({ ports: [4000] }) });
 *
 * What an agent has to prepare is prepared once for each identity: it becomes a snapshot, and every session
 * is a sandbox of its own that starts from it.
 */
import { HarnessSandboxAuthenticationError, type HarnessV1SandboxProvider } from '@ai-sdk/harness';

import {
  CayError,
  connect,
  isCayError,
  Sandbox,
  type ConnectOptions,
  type CreateSandboxInput,
  type SnapshotPage,
} from '@cay/sdk';
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CayNetworkSandboxSession } from './network-session.ts';

const PROVIDER_ID = 'cay';
const IDENTITY = 'ai-sdk.identity';
const SESSION = 'ai-sdk.session';
/** A sandbox that prepares an identity and is older than this belongs to a program that has died. */
const PREPARES_FOR_MS = 30 * 60_000;
const POLL_MS = 500;

export interface CaySandboxSettings
  extends
    ConnectOptions,
    Pick<CreateSandboxInput, 'template' | 'env' | 'limits' | 'network' | 'timeoutMs' | 'onTimeout' | 'idle'> {
  labels?: Record<string, string>;
  /** Ports that sessions can resolve. They are private: an endpoint has the header with the token. */
  ports?: readonly number[];
  /** What `stop` does: `pause` keeps processes too, `stop` ends them. Default: `pause`. */
  onStop?: 'pause' | 'stop';
}

type CreateOptions = NonNullable<Parameters<HarnessV1SandboxProvider['createSession']>[0]>;
type ResumeOptions = Parameters<NonNullable<HarnessV1SandboxProvider['resumeSession']>>[0];

export function createCaySandbox(settings: CaySandboxSettings = {}): CaySandboxProvider {
  return new CaySandboxProvider(settings);
}

export class CaySandboxProvider implements HarnessV1SandboxProvider {
  readonly specificationVersion = 'harness-sandbox-v1' as const;
  readonly providerId = PROVIDER_ID;
  readonly #settings: CaySandboxSettings;
  /** Identities that this program prepares now. */
  readonly #preparing = new Map<string, Promise<`snap_${string}`>>();

  constructor(settings: CaySandboxSettings) {
    this.#settings = settings;
  }

  /** The same `sessionId` is the same sandbox, as long as it is not destroyed. */
  createSession = async (options: CreateOptions = {}): Promise<CayNetworkSandboxSession> => {
    const { sessionId, identity, onFirstCreate, abortSignal } = options;
    return this.#checked(abortSignal, async () => {
      const snapshot = identity !== undefined && onFirstCreate && (await this.#prepared(identity, options));
      const sandbox = await this.#create(
        {
          ...(sessionId !== undefined && { name: nameOf(sessionId), getOrCreate: true }),
          ...(snapshot && { snapshot }),
          labels: {
            ...this.#settings.labels,
            ...(sessionId !== undefined && { [SESSION]: hashOf(sessionId) }),
          },
        },
        abortSignal,
      );
      const session = this.#session(sandbox);
      if (identity === undefined && onFirstCreate)
        await this.#runOnce(sandbox, session, onFirstCreate, abortSignal);
      return session;
    });
  };

  resumeSession = async ({ sessionId, abortSignal }: ResumeOptions): Promise<CayNetworkSandboxSession> =>
    this.#checked(abortSignal, async () => {
      const sandbox = await Sandbox.connect(nameOf(sessionId), this.#access(abortSignal));
      if (sandbox.info.state === 'stopped') await sandbox.start({ signal: abortSignal });
      else if (sandbox.info.state === 'paused') await sandbox.resume({ signal: abortSignal });
      return this.#session(sandbox);
    });

  #session(sandbox: Sandbox): CayNetworkSandboxSession {
    const { ports = [], onStop = 'pause' } = this.#settings;
    return new CayNetworkSandboxSession(sandbox, { ports, onStop, access: this.#access() });
  }

  #access(signal?: AbortSignal): ConnectOptions & { signal?: AbortSignal } {
    const { url, apiKey, fetch, WebSocket } = this.#settings;
    return { url, apiKey, fetch, WebSocket, signal };
  }

  #create(request: CreateSandboxInput, signal: AbortSignal | undefined): Promise<Sandbox> {
    const { template, env, limits, network, timeoutMs, onTimeout, idle, ports } = this.#settings;
    const given = { template, env, limits, network, timeoutMs, onTimeout, idle };
    const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    if (request.snapshot !== undefined) delete defined['template'];
    return Sandbox.create({ ...defined, ports: [...(ports ?? [])], ...request }, this.#access(signal));
  }

  /** Without an identity nothing is kept: the sandbox itself is prepared, and removed if that fails. */
  async #runOnce(
    sandbox: Sandbox,
    session: CayNetworkSandboxSession,
    onFirstCreate: NonNullable<CreateOptions['onFirstCreate']>,
    abortSignal: AbortSignal | undefined,
  ): Promise<void> {
    try {
      await onFirstCreate(session.restricted(), { abortSignal });
    } catch (error) {
      await sandbox.kill().catch(() => {});
      throw error;
    }
  }

  /** The snapshot of an identity, which is made if there is none. */
  #prepared(identity: string, options: CreateOptions): Promise<`snap_${string}`> {
    const key = hashOf(JSON.stringify([identity, this.#settings.template ?? null]));
    const under = this.#preparing.get(key);
    if (under) return under;
    const prepared = this.#prepare(key, options).finally(() => this.#preparing.delete(key));
    this.#preparing.set(key, prepared);
    return prepared;
  }

  /** The name of the sandbox in which it is prepared keeps other programs from preparing the same. */
  async #prepare(key: string, { onFirstCreate, abortSignal }: CreateOptions): Promise<`snap_${string}`> {
    for (;;) {
      const known = await this.#snapshotOf(key, abortSignal);
      if (known) return known;
      const made = await this.#create(
        { name: `ai-sdk-${key.slice(0, 32)}`, timeoutMs: PREPARES_FOR_MS, onTimeout: 'destroy' },
        abortSignal,
      ).catch((error: unknown) => {
        if (isCayError(error, 'already_exists')) return undefined;
        throw error;
      });
      if (!made) {
        await sleep(POLL_MS, undefined, { signal: abortSignal });
        continue;
      }
      try {
        await onFirstCreate!(this.#session(made).restricted(), { abortSignal });
        const { id } = await made.snapshot({ labels: { [IDENTITY]: key }, signal: abortSignal });
        return id as `snap_${string}`;
      } finally {
        await made.kill();
      }
    }
  }

  async #snapshotOf(key: string, signal: AbortSignal | undefined): Promise<`snap_${string}` | undefined> {
    const { snapshots } = await connect(this.#access(signal)).json<SnapshotPage>('GET', '/v1/snapshots', {
      query: { label: `${IDENTITY}=${key}`, limit: 1 },
      signal,
    });
    return snapshots[0]?.id;
  }

  /** Failures as the framework knows them. */
  async #checked<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    signal?.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (
        error instanceof CayError &&
        (error.code === 'unauthenticated' || error.code === 'permission_denied')
      )
        throw new HarnessSandboxAuthenticationError({
          message: `${error.message}. Set CAY_API_KEY, or give createCaySandbox an apiKey.`,
          sandboxProviderId: PROVIDER_ID,
          cause: error,
        });
      throw error;
    }
  }
}

const hashOf = (text: string) => createHash('sha256').update(text).digest('hex');
/** Session ids may have characters that names have not. */
const nameOf = (sessionId: string) => `ai-sdk-session-${hashOf(sessionId).slice(0, 32)}`;
