/**
 * @module Cay as a sandbox provider of TanStack AI.
 *
 *     const sandbox = defineSandbox({ id: 'coder', provider: caySandbox(), workspace });
 */
import type {
  SandboxCreateInput,
  SandboxPolicy,
  SandboxProvider,
  SandboxRestoreInput,
} from '@tanstack/ai-sandbox';
import {
  isCayError,
  Sandbox,
  type ConnectOptions,
  type CreateSandboxInput,
  type NetworkPolicy,
} from '@cay/sdk';
import { createHash } from 'node:crypto';
import { CAPABILITIES } from './capabilities.ts';
import { CayHandle } from './handle.ts';

export interface CaySandboxOptions
  extends
    ConnectOptions,
    Pick<
      CreateSandboxInput,
      'template' | 'limits' | 'network' | 'timeoutMs' | 'onTimeout' | 'idle' | 'labels'
    > {
  /** The directory of the workspace inside. Default: `/workspace`. */
  workspaceRoot?: string;
}

export function caySandbox(options: CaySandboxOptions = {}): SandboxProvider {
  const { url, apiKey, fetch, WebSocket, workspaceRoot = '/workspace', ...given } = options;
  const access = (signal?: AbortSignal) => ({ url, apiKey, fetch, WebSocket, signal });
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));

  async function found(id: string, signal?: AbortSignal): Promise<Sandbox | null> {
    try {
      return await Sandbox.connect(id.startsWith('sbx_') ? id : nameOf(id), access(signal));
    } catch (error) {
      if (isCayError(error, 'not_found')) return null;
      throw error;
    }
  }

  async function made(
    request: CreateSandboxInput,
    { id, policy, env, signal }: SandboxCreateInput & Partial<SandboxRestoreInput>,
  ): Promise<CayHandle> {
    const network = networkOf(policy);
    const sandbox = await Sandbox.create(
      {
        ...defined,
        ...(id !== undefined && { name: nameOf(id), getOrCreate: true }),
        ...(network !== undefined && { network }),
        ...(env && { env }),
        ...request,
      },
      access(signal),
    );
    const handle = new CayHandle(sandbox, { id: id ?? sandbox.id, workspaceRoot });
    try {
      await handle.prepare();
    } catch (error) {
      await sandbox.kill().catch(() => {});
      throw error;
    }
    return handle;
  }

  return {
    name: 'cay',
    capabilities: () => CAPABILITIES,
    create: (input) => made({}, input),
    async resume({ id, signal }) {
      const sandbox = await found(id, signal);
      if (!sandbox) return null;
      const { state } = sandbox.info;
      if (state === 'destroying') return null;
      if (state === 'stopped' || state === 'failed') await sandbox.start({ signal });
      return new CayHandle(sandbox, { id, workspaceRoot });
    },
    restoreSnapshot: ({ snapshotId, ...input }) =>
      made({ snapshot: snapshotId as `snap_${string}`, template: undefined }, input),
    async destroy({ id, signal }) {
      await (await found(id, signal))?.kill({ signal });
    },
  };
}

/** What the policy says of the network alone: commands and files are decided before they reach a sandbox. */
function networkOf(policy: SandboxPolicy | undefined): NetworkPolicy | undefined {
  const decision = policy?.capabilities?.network;
  return decision && ({ allow: 'public', ask: 'ask', deny: 'none' } as const)[decision];
}

/** Ids of the framework may have characters that names have not. */
const nameOf = (id: string) => `tanstack-${createHash('sha256').update(id).digest('hex').slice(0, 32)}`;
