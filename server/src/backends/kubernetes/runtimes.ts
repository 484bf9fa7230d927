/** The ways in which the cluster runs pods, and what our sandboxes can do in each. */
import { ABILITIES, CayError, isCayError, type Ability, type Capabilities } from '@cay/sdk/protocol';
import type { KubernetesClient } from './client/kubernetes-client.ts';
import type { List, RuntimeClass } from './client/objects.ts';
import { allowsRuntime, preferredRuntime, requireRuntime } from '../../policy/allow-runtime.ts';
import { DEFAULT_POLICY } from '../../policy/policy.ts';
import { DEFAULT_RUNTIME, type KubernetesSettings } from './settings.ts';

export interface Runtime {
  name: string;
  /**
   * gVisor's kernel belongs to one pod. It counts processes for the pod where Linux counts them for the node,
   * and its OOM killer chooses other processes.
   */
  gvisor: boolean;
}

/** `default` and every RuntimeClass. Where we may not see them only the one in the settings is known. */
export async function findRuntimes(
  client: KubernetesClient,
  configured: string | undefined,
  signal?: AbortSignal,
): Promise<Map<string, Runtime>> {
  const found = new Map<string, Runtime>([[DEFAULT_RUNTIME, { name: DEFAULT_RUNTIME, gvisor: false }]]);
  try {
    const { items } = (await client.json('GET', '/apis/node.k8s.io/v1/runtimeclasses', {
      action: 'list RuntimeClasses',
      signal,
    })) as List<RuntimeClass>;
    for (const { metadata, handler } of items)
      found.set(metadata.name, { name: metadata.name, gvisor: /runsc|gvisor/i.test(handler) });
  } catch (error) {
    if (!isCayError(error, 'permission_denied')) throw error;
    if (configured !== undefined)
      found.set(configured, { name: configured, gvisor: /runsc|gvisor/i.test(configured) });
  }
  return found;
}

/** The runtimes that sandboxes may have. */
export interface RuntimeChoice {
  /** Those that there are and may be asked for. */
  readonly names: string[];
  /** The runtime of that name, or the default. Rejects `not_found` and `permission_denied`. */
  pick(name?: string): Runtime;
}

/**
 * What the operator allows of what there is. With a RuntimeClass in the settings and no list of what is
 * allowed, pods without any RuntimeClass are not: they would be the weaker isolation.
 */
export function runtimeChoice(
  found: ReadonlyMap<string, Runtime>,
  { policy = DEFAULT_POLICY, runtimeClass }: Pick<KubernetesSettings, 'policy' | 'runtimeClass'>,
): RuntimeChoice {
  const known = [...found.keys()];
  const classes = known.filter((name) => name !== DEFAULT_RUNTIME);
  const allowed = policy.runtimes || runtimeClass === undefined ? policy : { runtimes: classes };
  return {
    names: known.filter((name) => allowsRuntime(allowed, name)),
    pick(name) {
      if (name !== undefined && (policy.runtimes || found.has(name))) requireRuntime(allowed, name, known);
      const wanted = name ?? preferredRuntime(allowed, runtimeClass ?? DEFAULT_RUNTIME, known);
      const runtime = found.get(wanted);
      if (runtime) return runtime;
      throw new CayError('not_found', `Runtime "${wanted}" is unknown to Kubernetes`, {
        hint: `known runtimes: ${this.names.join(', ')}`,
      });
    },
  };
}

const MISSING: Partial<Record<Ability, string>> = {
  ownIds: 'pods of one image run as the same user of their node',
  users: 'a pod has one user that is not root, as Pod Security "restricted" demands',
  resize: 'the limits of a pod are not changed while it runs',
  freeze: 'Kubernetes cannot pause a pod',
  suspend: 'the files of a pod end with it',
  snapshots: 'the server has no directory to keep them in',
  snapshotXattrs: 'there are no snapshots',
  snapshotRoot: 'a pod can write a few directories, and has all other files of its image',
  memorySnapshots: 'Kubernetes cannot keep processes',
  volumeCopies: 'claims are copied where the storage can, which was not tried: no copies are made',
  volumeArchives: 'the files of a claim are read by the sandboxes that mount it',
  volumeSubpath: 'to a part of a volume a node follows the links that programs make in it',
  tmpfs: 'pods mount volumes alone',
  bucketMounts: 'pods mount volumes alone: use copies of buckets',
  hostPaths: 'pods mount volumes alone',
};

const MISSING_ON_LINUX: Partial<Record<Ability, string>> = {
  pidsLimit: 'Kubernetes has no limit for one pod; the node\'s own "podPidsLimit" holds',
};

const MISSING_ON_GVISOR: Partial<Record<Ability, string>> = {
  xattrs: 'gVisor has no user extended attributes',
};

/** How an ability works here, where that differs from other backends. */
const HOW: Partial<Record<Ability, string>> = {
  diskLimit:
    'no write is refused: the kubelet looks every few seconds to every minute, and evicts a pod that has written more. ' +
    'The sandbox is then "failed" with the reason "disk_full", and its files are gone',
};

/** `said` in place of the default reasons. */
export function abilitiesOf(
  runtime: Runtime,
  said: Partial<Record<Ability, string>> = {},
): Pick<Capabilities, 'abilities' | 'notes'> {
  const notes = { ...MISSING, ...(runtime.gvisor ? MISSING_ON_GVISOR : MISSING_ON_LINUX), ...said };
  const abilities = Object.fromEntries(
    ABILITIES.map((ability) => [ability, notes[ability] === undefined]),
  ) as Record<Ability, boolean>;
  return { abilities, notes: { ...HOW, ...notes } };
}
