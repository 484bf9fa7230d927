/**
 * The Sandboxes of one installation in one namespace, and the claims for those that come from the warm pool.
 *
 * A claim is named after the sandbox. The Sandbox given for it has a name of the pool's, and gets our labels
 * when its guest has answered. From then on the Sandbox is the workload, and the claim owns it: the claim has
 * the lease, and its removal removes everything.
 */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { LABELS, objectName, sandboxOf, selectorOf } from '../client/names.ts';
import type { KubernetesObject, Pod } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import { statusOf, statusPatch } from '../workloads/workload-status.ts';
import {
  newestOf,
  podsOf,
  supersededOf,
  type Found,
  type Workload,
  type Workloads,
} from '../workloads/workload.ts';
import { renderClaim } from './claim.ts';
import { claimedSandbox, noteOnClaim } from './claimed-sandbox.ts';
import { claimOf, isClaim, type Sandbox, type SandboxClaim } from './objects.ts';
import { besideSandboxes } from './beside-sandboxes.ts';
import { merged, patchObject } from './patch-object.ts';
import { listOf, read } from './read-objects.ts';
import { EXTENSIONS_VERSION } from './pool-objects.ts';
import { CORE_VERSION, moment, renderSandbox, whyOver, whyStuck } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';
import type { WarmPool } from './warm-pool.ts';

const POD_NAME = 'agents.x-k8s.io/pod-name';

interface Options {
  storage: PoolAndStorage['storage'];
  /** Absent: there are no claims. */
  pool: WarmPool | undefined;
}

export function agentSandboxes(
  { client, namespace, installation }: Place,
  { storage, pool }: Options,
): Workloads {
  const sandboxes = `/apis/${CORE_VERSION}/namespaces/${namespace}/sandboxes`;
  const claims = `/apis/${EXTENSIONS_VERSION}/namespaces/${namespace}/sandboxclaims`;
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const place = { client, sandboxes, claims };
  const selector = selectorOf(installation);
  /** Pods of the pool carry no sandbox's label yet. */
  const podSelector = pool ? `${LABELS.installation}=${installation}` : selector;

  const isOurs = (object: KubernetesObject | undefined) =>
    object?.metadata.labels?.[LABELS.installation] === installation;

  /** The Sandbox and the claim of one sandbox, as far as they exist. */
  async function look(
    id: SandboxId,
    signal?: AbortSignal,
  ): Promise<{ sandbox?: Sandbox; claim?: SandboxClaim }> {
    const action = `look at sandbox "${id}"`;
    const [labelled, claim] = await Promise.all([
      listOf<Sandbox>(client, sandboxes, selectorOf(installation, id), action, signal),
      pool && read<SandboxClaim>(client, `${claims}/${objectName(id)}`, action, signal),
    ]);
    // Ignore Sandboxes owned by another claim, even if they carry our labels.
    const sandbox = newestOf(
      labelled.filter((each) => (claimOf(each)?.name ?? objectName(id)) === objectName(id)),
    );
    return { sandbox, ...(isOurs(claim) && { claim }) };
  }

  const keepsFiles = (workload: Sandbox) => (workload.spec?.volumeClaimTemplates?.length ?? 0) > 0;

  return {
    collections: [
      { path: sandboxes, what: 'sandboxes', selector },
      ...(pool ? [{ path: claims, what: 'claims of sandboxes', selector }] : []),
    ],
    pods: { path: pods, what: 'pods of sandboxes', selector: podSelector },
    whyOver,
    whyStuck,
    keepsFiles,

    async find(id, { signal } = {}) {
      const action = `look at sandbox "${id}"`;
      const [{ sandbox, claim }, labelled] = await Promise.all([
        look(id, signal),
        listOf<Pod>(client, pods, selectorOf(installation, id), action, signal),
      ]);
      const workload = sandbox ? (claimOf(sandbox) ? goingWith(sandbox, claim) : sandbox) : claim;
      if (!workload) return undefined;
      if (!sandbox || !claimOf(sandbox)) return { workload, pods: podsOf(workload, labelled) };
      const pod = await read<Pod>(
        client,
        `${pods}/${sandbox.metadata.annotations?.[POD_NAME] ?? sandbox.metadata.name}`,
        action,
        signal,
      );
      return { workload, pods: pod ? podsOf(workload, [pod]) : [] };
    },

    async exists(id) {
      const { sandbox, claim } = await look(id);
      return (sandbox ?? claim) !== undefined;
    },

    async list({ signal } = {}) {
      const action = 'list sandboxes';
      const [made, claimed, running] = await Promise.all([
        listOf<Sandbox>(client, sandboxes, selector, action, signal),
        pool ? listOf<SandboxClaim>(client, claims, selector, action, signal) : [],
        listOf<Pod>(client, pods, podSelector, action, signal),
      ]);
      const found = new Map<SandboxId, Found & { id: SandboxId }>();
      const superseded = new Set(supersededOf(made));
      for (const each of [...claimed, ...made.filter((one) => !superseded.has(one))]) {
        const id = sandboxOf(each);
        if (id === undefined) continue;
        const workload = claimOf(each) ? goingWith(each, found.get(id)?.workload) : each;
        found.set(id, { id, workload, pods: podsOf(workload, running) });
      }
      return [...found.values()];
    },

    async create(id, spec, incarnation, { signal, ...options }) {
      const action = `create sandbox "${id}"`;
      const from = options.beside ? undefined : pool?.fitting(spec, options);
      const nowMs = client.now();
      const body =
        from === undefined
          ? renderSandbox(id, spec, incarnation, { ...options, storage, nowMs })
          : renderClaim(id, spec, incarnation, { ...options, pool: from, nowMs });
      try {
        return (await client.json('POST', from === undefined ? sandboxes : claims, {
          action,
          body,
          signal,
        })) as Sandbox | SandboxClaim;
      } catch (error) {
        const { sandbox, claim } = isCayError(error, 'conflict') ? await look(id, signal) : {};
        const made = sandbox ?? claim;
        if (made) return made;
        throw error;
      }
    },

    claimed: (claim, running) => claimedSandbox(place, claim, running),

    async note(workload, status, { signal } = {}) {
      const { name, uid } = workload.metadata;
      const action = `write the status of "${name}"`;
      const patched = statusPatch(status);
      const claim = claimOf(workload);
      const operatingMode = status.mark === 'stopped' ? 'Suspended' : 'Running';
      // The uid keeps this from being written on another object that got the same name meanwhile.
      const body = {
        ...merged({ metadata: { uid } }, patched),
        ...(keepsFiles(workload) && { spec: { operatingMode } }),
      };
      await Promise.all([
        patchObject(client, `${isClaim(workload) ? claims : sandboxes}/${name}`, body, { action, signal }),
        claim && noteOnClaim(place, claim, patched, action, signal),
      ]);
    },

    ...besideSandboxes({ ...place, installation }, keepsFiles),

    leftSeconds(workload: Sandbox | SandboxClaim) {
      // The lease of a claimed Sandbox is on its claim, which is not read here: it is renewed every time.
      if (claimOf(workload)) return 0;
      const until = isClaim(workload)
        ? workload.spec?.lifecycle?.shutdownTime
        : (workload as Sandbox).spec?.shutdownTime;
      return (Date.parse(until ?? '') - client.now()) / 1000 || 0;
    },

    async renew(workload, leaseSeconds) {
      const shutdownTime = moment(client.now() + leaseSeconds * 1000);
      const claim = isClaim(workload) ? workload.metadata : claimOf(workload);
      const { name, uid } = claim ?? workload.metadata;
      const spec = claim ? { lifecycle: { shutdownTime } } : { shutdownTime };
      // The status may not have been written on the claim yet.
      const status = claim && !isClaim(workload) ? statusPatch(statusOf(workload)) : undefined;
      const body = { ...(status ? merged({ metadata: { uid } }, status) : { metadata: { uid } }), spec };
      await patchObject(client, `${claim ? claims : sandboxes}/${name}`, body, {
        action: `renew the lease of "${name}"`,
        allow: [404, 409],
      });
    },

    async remove(id, { signal } = {}) {
      const action = `remove sandbox "${id}"`;
      const { sandbox, claim } = await look(id, signal);
      const owner = claim?.metadata ?? (sandbox && claimOf(sandbox));
      // A Sandbox that superseded another may exist beside it until that one is gone.
      const own = await listOf<Sandbox>(client, sandboxes, selectorOf(installation, id), action, signal);
      const free = own.filter((each) => !claimOf(each));
      const all = [
        ...(owner ? [{ path: `${claims}/${owner.name}`, uid: owner.uid }] : []),
        ...free.map(({ metadata }) => ({ path: `${sandboxes}/${metadata.name}`, uid: metadata.uid })),
      ];
      for (const { path, uid } of all) {
        const body = { propagationPolicy: 'Foreground', preconditions: { uid } };
        await client.json('DELETE', path, { action, body, allow: [404, 409], signal });
      }
      return all.length > 0;
    },
  };
}

/** A Sandbox whose claim is being removed is being removed too, also before the cluster has begun with it. */
function goingWith(workload: Workload, claim: Workload | undefined): Workload {
  const deletionTimestamp = workload.metadata.deletionTimestamp ?? claim?.metadata.deletionTimestamp;
  return deletionTimestamp === undefined
    ? workload
    : { ...workload, metadata: { ...workload.metadata, deletionTimestamp } };
}
