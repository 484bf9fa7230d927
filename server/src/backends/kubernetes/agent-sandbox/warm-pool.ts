/**
 * Sandboxes that run before anybody asks for them: a SandboxTemplate of the usual pod, and a SandboxWarmPool
 * of it.
 *
 * Neither kind has an expiry of its own. Both belong to a Sandbox that is suspended for ever, has no pod, and
 * carries the lease: when nobody renews it the cluster removes it, and the pool with it. Those that were
 * claimed belong to their claims by then.
 */
import { createHash } from 'node:crypto';
import { SandboxSpecSchema, type SandboxSpec } from '@cay/sdk/protocol';
import { DEFAULT_POLICY, usualLimits } from '../../../policy/policy.ts';
import { LABELS, MANAGER } from '../client/names.ts';
import type { KubernetesObject, List, Metadata } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import { podSpec, type PodOptions } from '../workloads/pod-spec.ts';
import type { Runtime } from '../runtimes.ts';
import { installationLabels } from '../workloads/workload.ts';
import { blueprint, CORE_VERSION, moment } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';

export const EXTENSIONS_VERSION = 'extensions.agents.x-k8s.io/v1beta1';
const APPLY = 'application/apply-patch+yaml';

export interface WarmPool {
  /** Its name, once it was applied. */
  readonly current: string | undefined;
  /** Makes the pool as it should be, and renews its lease; removes those of other settings. */
  apply(runtime: Runtime): Promise<void>;
  /** The name of the pool whose sandboxes are what a spec asks for. */
  fitting(spec: SandboxSpec, options: PodOptions): string | undefined;
}

interface Applied {
  kind: string;
  metadata: Partial<Metadata> & { name: string };
  spec: object;
}

const prefixOf = (installation: string) => `cay-${installation.slice(0, 30)}`;

/** The name of what carries the lease. */
export function holderOf(installation: string): string {
  return `${prefixOf(installation)}-warm`;
}

export function warmPool(place: Place, { warmPool: replicas = 0, storage }: PoolAndStorage): WarmPool {
  const { client, namespace, installation, settings } = place;
  const prefix = prefixOf(installation);
  const labels = installationLabels(installation);
  // Where files are on a volume no sandbox has a disk limit of its own.
  const limits = { ...usualLimits(settings.policy ?? DEFAULT_POLICY), ...(storage && { diskBytes: null }) };
  const usual = SandboxSpecSchema.parse({ limits });
  let now: { name: string; pod: string } | undefined;

  async function apply(version: string, plural: string, body: Applied): Promise<KubernetesObject> {
    const { name } = body.metadata;
    const path = `/apis/${version}/namespaces/${namespace}/${plural}/${name}`;
    const call = {
      action: `apply the ${body.kind} "${name}"`,
      query: { fieldManager: MANAGER, force: true },
      type: APPLY,
    };
    return (await client.json('PATCH', path, {
      ...call,
      body: { apiVersion: version, ...body },
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
      const options: PodOptions = {
        settings,
        requests: settings.requests,
        pullPolicy: settings.pullPolicy,
        runtime,
      };
      const made = blueprint(undefined, usual, labels, { ...options, storage });
      const name = `${prefix}-${createHash('sha256').update(JSON.stringify(made)).digest('hex').slice(0, 8)}`;
      const holder = await apply(CORE_VERSION, 'sandboxes', {
        kind: 'Sandbox',
        metadata: { name: holderOf(installation), labels },
        spec: {
          podTemplate: { spec: { containers: [{ name: 'none', image: settings.guestImage }] } },
          service: false,
          operatingMode: 'Suspended',
          shutdownTime: moment(client.now() + settings.leaseSeconds * 1000),
          shutdownPolicy: 'Delete',
        },
      });
      const ownerReferences = [
        { apiVersion: CORE_VERSION, kind: 'Sandbox', name: holder.metadata.name, uid: holder.metadata.uid },
      ];
      const metadata = { name, labels, ownerReferences };
      // What may be reached is for the policies of the namespace to say, as for every other sandbox.
      const template = {
        kind: 'SandboxTemplate',
        metadata,
        spec: { ...made, networkPolicyManagement: 'Unmanaged' },
      };
      await apply(EXTENSIONS_VERSION, 'sandboxtemplates', template);
      const pool = { kind: 'SandboxWarmPool', metadata, spec: { replicas, sandboxTemplateRef: { name } } };
      await apply(EXTENSIONS_VERSION, 'sandboxwarmpools', pool);
      now = { name, pod: JSON.stringify(podSpec(undefined, usual, options)) };
      for (const plural of ['sandboxwarmpools', 'sandboxtemplates']) await removeOthers(plural, name);
    },

    fitting(spec, options) {
      return now && JSON.stringify(podSpec(undefined, spec, options)) === now.pod ? now.name : undefined;
    },
  };
}
