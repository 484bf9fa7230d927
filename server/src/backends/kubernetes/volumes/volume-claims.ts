/**
 * Named volumes, each a claim of the namespace of its project.
 *
 * A claim is made with a label that says so, which is taken off when it is there: one that a server leaves
 * with the label is half made, is told to nobody, and is swept. What the cluster does for a claim is its own:
 * it may give it a volume at once, or when the first pod mounts it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, type SandboxId, type SandboxSpec, type VolumeId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { ignoreFailure } from '../../../lib/in-background.ts';
import type { CallScope, VolumeKeeping } from '../../backend.ts';
import { requireVolumeId } from '../../support/check.ts';
import { MERGE_PATCH } from '../client/kubernetes-client.ts';
import { ANNOTATIONS, LABELS, volumeClaimName } from '../client/names.ts';
import type { List } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import type { OrphanObject } from '../workloads/sweep.ts';
import type { Workloads } from '../workloads/workload.ts';
import type { VolumeSettings } from './volume-settings.ts';
import { factsOf, isGoing, isInTheMaking, renderVolumeClaim, volumeOf, type VolumeClaim } from './claim.ts';

export interface VolumeClaims extends VolumeKeeping {
  /** Rejects `not_found` for a volume of the spec that the project does not have. */
  requireAll(spec: SandboxSpec, scope?: CallScope): Promise<void>;
  /** Claims that a server has left half made. */
  leftOver(scope?: CallScope): Promise<OrphanObject[]>;
}

export interface VolumeClaimsOptions extends Pick<Place, 'client' | 'namespace' | 'installation'> {
  volumes: VolumeSettings | undefined;
  workloads: Pick<Workloads, 'list'>;
  /** Has the namespace made, and the rights in it. */
  prepare(): Promise<unknown>;
}

/** The cluster keeps a claim until the last pod that mounts it is gone. */
const GONE_MS = 30_000;
const LOOK_AGAIN_MS = 200;
/** Far longer than it takes to make one. */
const HALF_MADE_MS = 600_000;

export function volumeClaims(options: VolumeClaimsOptions): VolumeClaims {
  const { client, namespace, installation, volumes, workloads, prepare } = options;
  const claims = `/api/v1/namespaces/${namespace}/persistentvolumeclaims`;
  const pathOf = (id: VolumeId) => `${claims}/${volumeClaimName(id)}`;

  /** As it is, half made or on its way out too. That of another project is none. */
  async function look(id: VolumeId, { project, signal }: CallScope = {}): Promise<VolumeClaim | undefined> {
    requireVolumeId(id);
    const call = { action: `look at volume "${id}"`, signal, allow: [404] };
    const claim = (await client.json('GET', pathOf(id), call)) as VolumeClaim | undefined;
    const { [LABELS.installation]: owner, [LABELS.project]: whose } = claim?.metadata.labels ?? {};
    if (!claim || volumeOf(claim) !== id || owner !== installation) return undefined;
    return whose === undefined || project === undefined || whose === project ? claim : undefined;
  }

  async function kept(id: VolumeId, scope?: CallScope): Promise<VolumeClaim> {
    const claim = await look(id, scope);
    if (claim && !isGoing(claim) && !isInTheMaking(claim)) return claim;
    throw new CayError('not_found', `Volume "${id}" does not exist`, { details: { what: 'volume' } });
  }

  async function list({ signal }: CallScope = {}): Promise<(VolumeClaim & { id: VolumeId })[]> {
    const query = { labelSelector: `${LABELS.installation}=${installation},${LABELS.volume}` };
    const { items } = (await client.json('GET', claims, {
      action: 'list volumes',
      query,
      signal,
    })) as List<VolumeClaim>;
    return items.flatMap((claim) => {
      const id = volumeOf(claim);
      return id === undefined || isGoing(claim) ? [] : [{ ...claim, id }];
    });
  }

  /** The claim of this id, made now or by an earlier call. */
  async function make(id: VolumeId, sizeBytes: number | null, scope: CallScope): Promise<VolumeClaim> {
    const { project, signal } = scope;
    const there = await look(id, scope);
    if (there && isGoing(there))
      throw new CayError('unavailable', `Cannot make volume "${id}": one of that id is being removed`);
    if (there) return there;
    const body = renderVolumeClaim(id, {
      namespace,
      installation,
      project,
      sizeBytes,
      volumes,
    });
    try {
      return (await client.json('POST', claims, {
        action: `make volume "${id}"`,
        body,
        signal,
      })) as VolumeClaim;
    } catch (error) {
      const made = isCayError(error, 'conflict') ? await look(id, scope) : undefined;
      if (made) return made;
      throw error;
    }
  }

  async function remove({ metadata: { name, uid } }: VolumeClaim, id: VolumeId, signal?: AbortSignal) {
    const body = { propagationPolicy: 'Background', preconditions: { uid } };
    const action = `remove volume "${id}"`;
    await client.json('DELETE', `${claims}/${name}`, { action, body, allow: [404, 409], signal });
  }

  async function mounting(id: VolumeId, scope: CallScope): Promise<SandboxId[]> {
    const found = await workloads.list(scope);
    return found.flatMap((each) =>
      each.workload.metadata.annotations?.[ANNOTATIONS.volumes]?.split(',').includes(id) ? [each.id] : [],
    );
  }

  function unsupported(what: string): never {
    throw new CayError('unsupported', `Volumes of Kubernetes cannot be ${what}`);
  }

  return {
    async createVolume(id, { sizeBytes, from, readOnly, ...scope }) {
      requireVolumeId(id);
      if (readOnly && from === undefined)
        throw new CayError('invalid_argument', `Cannot make volume "${id}" read-only: it would stay empty`);
      if (from !== undefined) unsupported('copied');
      if (sizeBytes !== null && !volumes?.enforced) unsupported('limited in size here');
      await prepare();
      const claim = await make(id, sizeBytes, scope);
      const facts = { ...factsOf(id, claim), usedBytes: null };
      if (sizeBytes !== null && facts.sizeBytes !== sizeBytes)
        throw new CayError('already_exists', `Volume "${id}" exists already, with ${facts.sizeBytes} bytes`);
      if (!isInTheMaking(claim)) return facts;
      try {
        await faultPoint('kubernetes.volume.made');
        const { name, uid } = claim.metadata;
        const body = { metadata: { uid, labels: { [LABELS.making]: null } } };
        const call = { action: `make volume "${id}"`, body, type: MERGE_PATCH, signal: scope.signal };
        await client.json('PATCH', `${claims}/${name}`, call);
      } catch (error) {
        await remove(claim, id).catch(ignoreFailure);
        throw error;
      }
      return facts;
    },

    inspectVolume: async (id, scope) => ({ ...factsOf(id, await kept(id, scope)), usedBytes: null }),

    async listVolumes(scope) {
      const found = await list(scope);
      return found.filter((claim) => !isInTheMaking(claim)).map((claim) => factsOf(claim.id, claim));
    },

    async removeVolume(id, scope = {}) {
      const claim = await look(id, scope);
      if (!claim) return;
      const sandboxes = isGoing(claim) ? [] : await mounting(id, scope);
      if (sandboxes.length > 0)
        throw new CayError(
          'failed_precondition',
          `Cannot remove volume "${id}": ${sandboxes.length} sandboxes mount it`,
          { hint: 'remove these sandboxes first', details: { sandboxes } },
        );
      await remove(claim, id, scope.signal);
      await faultPoint('kubernetes.volume.removing');
      // What takes longer the cluster finishes: nothing takes the removal back.
      const deadline = Date.now() + GONE_MS;
      while (Date.now() < deadline && (await look(id, scope))?.metadata.uid === claim.metadata.uid)
        await sleep(LOOK_AGAIN_MS, undefined, { signal: scope.signal });
    },

    exportVolume: () => unsupported('exported'),
    importVolume: async () => unsupported('imported'),

    async requireAll({ mounts = [] }, scope) {
      for (const mount of mounts) if (mount.type === 'volume') await kept(mount.volume as VolumeId, scope);
    },

    async leftOver(scope) {
      const before = client.now() - HALF_MADE_MS;
      const found = await list(scope).catch((error: unknown) => {
        // Who may not list them has made none.
        if (isCayError(error, 'permission_denied') || isCayError(error, 'not_found')) return [];
        throw error;
      });
      return found
        .filter(
          (claim) => isInTheMaking(claim) && Date.parse(claim.metadata.creationTimestamp ?? '') < before,
        )
        .map(({ metadata: { name, uid } }) => ({
          kind: 'volume_claim',
          name,
          uid,
          path: `${claims}/${name}`,
        }));
    },
  };
}
