/** The ways in which the cluster runs pods, and what our sandboxes can do in each. */
import { ABILITIES, isCayError, type Ability, type Capabilities } from '@cay/sdk/protocol';
import type { KubernetesClient } from './kubernetes-client.ts';
import type { List, RuntimeClass } from './objects.ts';
import { DEFAULT_RUNTIME } from './settings.ts';

export interface Runtime {
  name: string;
  /** gVisor's kernel belongs to one pod: it counts what Linux counts for the whole node, and kills whom Linux would not. */
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
    for (const { metadata, handler } of items) found.set(metadata.name, { name: metadata.name, gvisor: /runsc|gvisor/i.test(handler) });
  } catch (error) {
    if (!isCayError(error, 'permission_denied')) throw error;
    if (configured !== undefined) found.set(configured, { name: configured, gvisor: /runsc|gvisor/i.test(configured) });
  }
  return found;
}

const MISSING: Partial<Record<Ability, string>> = {
  users: 'everybody in a pod is one user that is not root, as Pod Security "restricted" demands',
  diskLimit: 'Kubernetes ends a pod that writes too much, and cannot refuse the write',
  resize: 'the limits of a pod are not changed while it runs',
  freeze: 'Kubernetes cannot pause a pod',
  suspend: 'the files of a pod end with it',
  snapshots: 'the files of a pod are kept with it and nowhere else',
  memorySnapshots: 'Kubernetes cannot keep processes',
};

const MISSING_ON_LINUX: Partial<Record<Ability, string>> = {
  pidsLimit: 'Kubernetes has no limit for one pod; the node\'s own "podPidsLimit" holds',
};

const MISSING_ON_GVISOR: Partial<Record<Ability, string>> = {
  xattrs: 'gVisor has no user extended attributes',
};

/** `said` in place of the usual reasons. */
export function abilitiesOf(runtime: Runtime, said: Partial<Record<Ability, string>> = {}): Pick<Capabilities, 'abilities' | 'notes'> {
  const notes = { ...MISSING, ...(runtime.gvisor ? MISSING_ON_GVISOR : MISSING_ON_LINUX), ...said };
  const abilities = Object.fromEntries(ABILITIES.map((ability) => [ability, notes[ability] === undefined])) as Record<Ability, boolean>;
  return { abilities, notes };
}
