/**
 * The Sandbox that the cluster has given for a claim. It has a name of the pool's, and gets our labels when
 * its guest has answered.
 */
import { CayError } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import type { KubernetesClient } from '../client/kubernetes-client.ts';
import type { Pod } from '../client/objects.ts';
import { statusPatch, type StatusPatch } from '../workloads/workload-status.ts';
import type { Claimed, Workload } from '../workloads/workload.ts';
import { isClaim } from './objects.ts';
import { merged, patchObject } from './patch-object.ts';

const OURS = 'cay.dev/';

export interface ClaimPlace {
  client: KubernetesClient;
  /** Paths of the collections. */
  sandboxes: string;
  claims: string;
}

export function claimedSandbox(
  place: ClaimPlace,
  claim: Workload,
  running: readonly Pod[],
): Claimed | undefined {
  const name = isClaim(claim) ? claim.status?.sandbox?.name : undefined;
  if (name === undefined) return undefined;
  // The pod names its owner, so the Sandbox itself need not be read.
  const ownerOf = ({ metadata }: Pod) =>
    metadata.ownerReferences?.find((each) => each.kind === 'Sandbox' && each.name === name);
  const pod = running.find(ownerOf);
  const owner = pod && ownerOf(pod);
  if (!owner) return undefined;
  const { labels, annotations = {} } = claim.metadata;
  const ours = Object.fromEntries(Object.entries(annotations).filter(([key]) => key.startsWith(OURS)));
  const workload = { metadata: { name, uid: owner.uid, labels, annotations: ours } };
  return {
    workload,
    pods: [pod],
    takeOver: (status, { signal } = {}) =>
      takeOver(place, workload, claim.metadata, statusPatch(status), signal),
    settled: (status) =>
      noteOnClaim(place, claim.metadata, statusPatch(status), `write the status of "${claim.metadata.name}"`),
  };
}

/** Writes our labels and the status on the Sandbox that was given for a claim. */
async function takeOver(
  { client, sandboxes }: ClaimPlace,
  { metadata: { name, uid, labels, annotations } }: Workload,
  claim: { uid: string },
  status: StatusPatch,
  signal?: AbortSignal,
) {
  const action = `take over "${name}"`;
  await faultPoint('agent-sandbox.claim.given');
  const given = await patchObject(
    client,
    `${sandboxes}/${name}`,
    merged({ metadata: { uid, labels, annotations } }, status),
    { action, signal },
  );
  await faultPoint('agent-sandbox.claim.taken');
  if (given?.metadata.ownerReferences?.some((owner) => owner.uid === claim.uid)) return;
  throw new CayError('conflict', `Cannot ${action}: it was given to another claim`);
}

/** Writes the status on the claim too: it reports the loss if the Sandbox is removed by hand. */
export async function noteOnClaim(
  { client, claims }: ClaimPlace,
  { name, uid }: { name: string; uid: string },
  status: StatusPatch,
  action: string,
  signal?: AbortSignal,
) {
  await patchObject(client, `${claims}/${name}`, merged({ metadata: { uid } }, status), {
    action,
    allow: [404, 409],
    signal,
  });
}
