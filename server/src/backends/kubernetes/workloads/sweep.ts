/**
 * Finds orphans of this installation in the cluster and removes them. Only objects with its labels are looked
 * at. An object whose owner exists belongs to that owner, and so does one whose owner is of a kind that we do
 * not make. Sandboxes are left alone: only the control plane knows whether a sandbox is an orphan.
 */
import { isCayError } from '@cay/sdk/protocol';
import type { CallScope, Orphan } from '../../backend.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import { LABELS, MANAGER } from '../client/names.ts';
import type { KubernetesObject, List, Metadata } from '../client/objects.ts';
import type { Workloads } from './workload.ts';

/** An object that no sandbox needs. */
export interface OrphanObject extends Orphan {
  path: string;
  uid: string;
}

export interface SweepContext {
  client: KubernetesClient;
  namespace: string;
  installation: string;
  workloads: Pick<Workloads, 'list'>;
  /** Objects that only this kind of backend makes and that nothing needs any more. */
  others?(): Promise<OrphanObject[]>;
  onError(error: unknown): void;
}

/** The objects that belong to a workload, by resource, with the kind that is reported for an orphan. */
const KEPT: Record<string, Orphan['kind']> = { pods: 'pod', persistentvolumeclaims: 'volume_claim' };
/** The resources of their owners. */
const KEEPERS: Record<string, string> = { Job: 'jobs', Sandbox: 'sandboxes' };

export async function sweep(
  context: SweepContext,
  { dryRun = false, signal }: CallScope & { dryRun?: boolean } = {},
): Promise<Orphan[]> {
  const { client, others, onError } = context;
  const orphans = [...(await unkept(context, signal)), ...((await others?.()) ?? [])];
  for (const { name, path, uid } of dryRun ? [] : orphans) {
    const body = { propagationPolicy: 'Background', preconditions: { uid } };
    await client
      .json('DELETE', path, { action: `remove "${name}"`, body, allow: [404, 409], signal })
      .catch(onError);
  }
  return orphans.map(({ kind, name }) => ({ kind, name }));
}

/**
 * The objects of this installation in a collection. Empty where the kind is not installed or the account may
 * not list it.
 */
export async function listOurs(
  client: KubernetesClient,
  path: string,
  { installation, signal }: CallScope & { installation: string },
): Promise<Metadata[]> {
  const query = { labelSelector: `${LABELS.managedBy}=${MANAGER},${LABELS.installation}=${installation}` };
  const found = (await client.json('GET', path, {
    action: 'look for what was left behind',
    query,
    allow: [403, 404],
    signal,
  })) as List<KubernetesObject> | undefined;
  return (found?.items ?? [])
    .map(({ metadata }) => metadata)
    .filter(({ deletionTimestamp }) => deletionTimestamp === undefined);
}

async function unkept(
  { client, namespace, installation, workloads }: SweepContext,
  signal?: AbortSignal,
): Promise<OrphanObject[]> {
  const candidates: (OrphanObject & { owners: NonNullable<Metadata['ownerReferences']> })[] = [];
  for (const [resource, kind] of Object.entries(KEPT)) {
    const path = `/api/v1/namespaces/${namespace}/${resource}`;
    for (const { name, uid, ownerReferences: owners = [] } of await listOurs(client, path, {
      installation,
      signal,
    })) {
      candidates.push({ kind, name, uid, path: `${path}/${name}`, owners });
    }
  }
  // Owners are read after the objects: an owner that is made later owns none of these.
  const known = new Map(
    (await workloads.list({ signal })).map(({ workload }) => [workload.metadata.uid, true]),
  );

  async function isThere({
    apiVersion,
    kind,
    name,
    uid,
  }: NonNullable<Metadata['ownerReferences']>[number]): Promise<boolean> {
    const resource = KEEPERS[kind];
    if (resource === undefined || apiVersion === undefined) return true;
    const path = `/apis/${apiVersion}/namespaces/${namespace}/${resource}/${name}`;
    try {
      const found = (await client.json('GET', path, {
        action: `look at "${name}"`,
        allow: [404],
        signal,
      })) as KubernetesObject | undefined;
      return found?.metadata.uid === uid;
    } catch (error) {
      // Without the right to read the owner, assume that it exists.
      if (isCayError(error, 'permission_denied')) return true;
      throw error;
    }
  }

  const orphans: OrphanObject[] = [];
  for (const { owners, ...orphan } of candidates) {
    let kept = false;
    for (const owner of owners) {
      if (!known.has(owner.uid)) known.set(owner.uid, await isThere(owner));
      kept ||= known.get(owner.uid) === true;
    }
    if (!kept) orphans.push(orphan);
  }
  return orphans;
}
