/**
 * Sandboxes that run before they are asked for: a SandboxTemplate of the default pod, and a SandboxWarmPool
 * of it.
 *
 * Neither kind has an expiry. Both belong to a Sandbox that is suspended, has no pod, and carries the lease:
 * when the lease is over the cluster removes it, and the pool with it. A claimed Sandbox belongs to its claim
 * by then.
 */
import type { SandboxSpec } from '@cay/sdk/protocol';
import { LABELS, MANAGER } from '../client/names.ts';
import type { KubernetesObject, List } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import type { Runtime } from '../runtimes.ts';
import type { PodOptions } from '../workloads/pod-spec.ts';
import { EXTENSIONS_VERSION, poolObjects, type PoolObject, type PoolObjects } from './pool-objects.ts';
import { CORE_VERSION } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';

const APPLY = 'application/apply-patch+yaml';

export interface WarmPool {
  /** Its name, once it was applied. */
  readonly current: string | undefined;
  /** Applies the objects of the pool, renews its lease, and removes pools of other settings. */
  apply(runtime: Runtime): Promise<void>;
  /** The name of the pool whose sandboxes have this spec. */
  fitting(spec: SandboxSpec, options: PodOptions): string | undefined;
}

export function warmPool(place: Place, settings: PoolAndStorage): WarmPool {
  const { client, namespace, installation } = place;
  let now: PoolObjects | undefined;

  async function apply(plural: string, body: PoolObject): Promise<KubernetesObject> {
    const { name } = body.metadata;
    const path = `/apis/${body.apiVersion}/namespaces/${namespace}/${plural}/${name}`;
    return (await client.json('PATCH', path, {
      action: `apply the ${body.kind} "${name}"`,
      query: { fieldManager: MANAGER, force: true },
      type: APPLY,
      body,
    })) as KubernetesObject;
  }

  async function removeOthers(plural: string, name: string): Promise<void> {
    const path = `/apis/${EXTENSIONS_VERSION}/namespaces/${namespace}/${plural}`;
    const query = { labelSelector: `${LABELS.installation}=${installation}` };
    const { items } = (await client.json('GET', path, {
      action: `list ${plural}`,
      query,
    })) as List<KubernetesObject>;
    for (const { metadata } of items) {
      if (metadata.name === name) continue;
      await client.json('DELETE', `${path}/${metadata.name}`, {
        action: `remove "${metadata.name}"`,
        allow: [404],
      });
    }
  }

  return {
    get current() {
      return now?.name;
    },

    async apply(runtime) {
      const objects = poolObjects({ ...place, nowMs: client.now() }, settings, runtime);
      const { name, uid } = (await apply('sandboxes', objects.holder)).metadata;
      const ownerReferences = [{ apiVersion: CORE_VERSION, kind: 'Sandbox', name, uid }];
      const owned = (object: PoolObject): PoolObject => ({
        ...object,
        metadata: { ...object.metadata, ownerReferences },
      });
      await apply('sandboxtemplates', owned(objects.template));
      await apply('sandboxwarmpools', owned(objects.pool));
      now = objects;
      for (const plural of ['sandboxwarmpools', 'sandboxtemplates']) await removeOthers(plural, objects.name);
    },

    fitting: (spec, options) => (now?.fits(spec, options) ? now.name : undefined),
  };
}
