import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { applyOurs, type Declared } from './apply.ts';
import type { KubernetesClient } from './kubernetes-client.ts';
import type { KubernetesSettings } from './settings.ts';
import { tenancyObjects } from './tenancy.ts';

/** How long what somebody has changed stays changed. */
const AGAIN_MS = 60_000;
const USABLE_MS = 10_000;

export interface TenancyKeeping {
  /** Resolves when everything was as declared once. Rejects with what stands in the way, and is tried again by the next call. */
  ready(): Promise<void>;
  stop(): void;
}

export interface TenancyKeepingOptions {
  installation: string;
  objects: Declared[];
  everyMs?: number;
  onError(error: unknown): void;
}

/** Keeps objects as they are declared: at the first call, and then again and again. */
export function tenancyKeeping(client: KubernetesClient, options: TenancyKeepingOptions): TenancyKeeping {
  const { installation, objects, onError, everyMs = AGAIN_MS } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let first: Promise<void> | undefined;

  async function apply(): Promise<void> {
    // In their order: what is in a namespace comes after it.
    for (const object of objects) {
      const made = await applyOurs(client, object, installation, closing.signal).catch(explained);
      if (made && object.kind === 'Namespace') await untilUsable(client, object.metadata.name, closing.signal);
    }
  }

  async function again(): Promise<void> {
    await apply().catch((error: unknown) => closing.signal.aborted || onError(error));
    if (!closing.signal.aborted) timer = setTimeout(() => void again(), everyMs).unref();
  }

  return {
    ready() {
      return (first ??= apply().then(
        () => {
          timer = setTimeout(() => void again(), everyMs).unref();
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

/** A pod needs the account that the cluster gives to each namespace a moment after it was made, also if it may not use it. */
async function untilUsable(client: KubernetesClient, namespace: string, signal: AbortSignal): Promise<void> {
  const deadline = Date.now() + USABLE_MS;
  const call = { action: `look at namespace "${namespace}"`, allow: [404], signal };
  try {
    while (Date.now() < deadline && !(await client.json('GET', `/api/v1/namespaces/${namespace}/serviceaccounts/default`, call))) {
      await sleep(50, undefined, { signal });
    }
  } catch (error) {
    // Who may not look does without.
    if (!isCayError(error, 'permission_denied')) throw error;
  }
}

/** The keeping that the settings ask for, if any. */
export function keepTenancy(
  client: KubernetesClient,
  { tenancy, installation }: KubernetesSettings & { installation: string },
  namespace: string,
  onError: (error: unknown) => void,
): TenancyKeeping | undefined {
  return tenancy && tenancyKeeping(client, { installation, objects: tenancyObjects({ namespace, installation, tenancy }), onError });
}

function explained(error: unknown): never {
  if (!isCayError(error, 'permission_denied')) throw error;
  throw new CayError(error.code, error.message, {
    cause: error,
    details: error.details,
    hint: 'Have somebody who may run "cay kubernetes render | kubectl apply --server-side --field-manager cay -f -"; or leave the namespace to others with CAY_KUBERNETES_TENANCY=unmanaged',
  });
}
