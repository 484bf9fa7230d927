import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { applyOurs, type Declared } from '../client/apply.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { ownAccount } from '../client/own-account.ts';
import { mayWe } from '../prerequisites.ts';
import type { KubernetesSettings } from '../settings.ts';
import { TENANCY_RIGHTS, tenancyObjects } from './tenancy.ts';
import { inBackground } from '../../../lib/in-background.ts';

/** How often objects that were changed by hand are put back. */
const AGAIN_MS = 60_000;
const USABLE_MS = 10_000;

export interface TenancyReconciler {
  /** Resolves when all objects were once as declared. Rejects with the reason; the next call tries again. */
  ready(): Promise<void>;
  stop(): void;
}

export interface TenancyReconcilerOptions {
  installation: string;
  /** In their order: what is in a namespace comes after it, and after the rights there. */
  objects(): Promise<Declared[]> | Declared[];
  everyMs?: number;
  onError(error: unknown): void;
}

/** Keeps objects as they are declared: at the first call, and then again and again. */
export function tenancyReconciler(
  client: KubernetesClient,
  options: TenancyReconcilerOptions,
): TenancyReconciler {
  const { installation, objects, onError, everyMs = AGAIN_MS } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let first: Promise<void> | undefined;

  async function apply(): Promise<void> {
    for (const object of await objects()) {
      const made = await applyOurs(client, object, installation, closing.signal).catch(explained);
      if (made && object.kind === 'Namespace')
        await untilUsable(client, object.metadata.name, closing.signal);
      if (made && object.kind === 'RoleBinding')
        await untilBound(client, object.metadata.namespace!, closing.signal);
    }
  }

  async function again(): Promise<void> {
    await apply().catch((error: unknown) => closing.signal.aborted || onError(error));
    if (!closing.signal.aborted) timer = setTimeout(() => inBackground(again(), onError), everyMs).unref();
  }

  return {
    ready() {
      return (first ??= apply().then(
        () => {
          timer = setTimeout(() => inBackground(again(), onError), everyMs).unref();
        },
        (error: unknown) => {
          first = undefined;
          throw error;
        },
      ));
    },
    stop() {
      closing.abort();
      clearTimeout(timer);
    },
  };
}

/**
 * A pod needs the account that the cluster gives to each namespace a moment after it was made, also if it may
 * not use it.
 */
async function untilUsable(client: KubernetesClient, namespace: string, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + USABLE_MS;
  const call = { action: `look at namespace "${namespace}"`, allow: [404], signal };
  try {
    while (
      Date.now() < deadline &&
      !(await client.json('GET', `/api/v1/namespaces/${namespace}/serviceaccounts/default`, call))
    ) {
      await sleep(50, undefined, { signal });
    }
  } catch (error) {
    // An account that may not read them does without.
    if (!isCayError(error, 'permission_denied')) throw error;
  }
}

/** The API server learns of a binding a moment after it was made. */
async function untilBound(client: KubernetesClient, namespace: string, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + USABLE_MS;
  const asked = TENANCY_RIGHTS.at(-1)!;
  const isBound = () => mayWe(client, { ...asked, verb: asked.verbs.at(-1)! }, namespace, signal);
  while (Date.now() < deadline && !(await isBound())) await sleep(50, undefined, { signal });
}

/** The reconciliation that the settings ask for, if any. */
export function keepTenancy(
  client: KubernetesClient,
  { tenancy, installation }: KubernetesSettings & { installation: string },
  { namespace, project }: { namespace: string; project?: string },
  onError: (error: unknown) => void,
): TenancyReconciler | undefined {
  if (!tenancy) return undefined;
  const objects = async () => {
    const account = project === undefined ? undefined : await ownAccount(client);
    return tenancyObjects({ namespace, installation, tenancy, project, account });
  };
  return tenancyReconciler(client, { installation, objects, onError });
}

function explained(error: unknown): never {
  if (!isCayError(error, 'permission_denied')) throw error;
  throw new CayError(error.code, error.message, {
    cause: error,
    details: error.details,
    hint: 'ask a cluster admin to run "cay kubernetes render | kubectl apply --server-side --field-manager cay -f -"; or leave the namespace to others with CAY_KUBERNETES_TENANCY=unmanaged',
  });
}
