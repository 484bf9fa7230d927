/**
 * The Sandboxes of one installation in one namespace, and the claims by which some of them were had from the warm pool.
 *
 * A claim is named after the sandbox; what it is given has a name of the pool's, and gets our labels when it is taken over. From then on
 * the Sandbox is what counts, and the claim keeps it: it has the lease, and its removal removes everything.
 */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import { MERGE_PATCH } from '../kubernetes/kubernetes-client.ts';
import { LABELS, objectName, sandboxOf, selectorOf } from '../kubernetes/names.ts';
import type { KubernetesObject, List, Pod } from '../kubernetes/objects.ts';
import type { Place } from '../kubernetes/pod-backend.ts';
import { standingPatch } from '../kubernetes/standing.ts';
import { isOwnedBy, podsOf, workloadMetadata, type Found, type Workloads } from '../kubernetes/workloads.ts';
import { claimOf, isClaim, type Sandbox, type SandboxClaim } from './objects.ts';
import { CORE_VERSION, moment, renderSandbox, whyOver, whyStuck } from './sandbox.ts';
import type { PoolAndStorage } from './settings.ts';
import { EXTENSIONS_VERSION, type WarmPool } from './warm-pool.ts';

const POD_NAME = 'agents.x-k8s.io/pod-name';
const OURS = 'cay.dev/';

interface Options {
  storage: PoolAndStorage['storage'];
  /** Absent: claims are of no concern. */
  pool: WarmPool | undefined;
}

export function agentSandboxes({ client, namespace, installation }: Place, { storage, pool }: Options): Workloads {
  const sandboxes = `/apis/${CORE_VERSION}/namespaces/${namespace}/sandboxes`;
  const claims = `/apis/${EXTENSIONS_VERSION}/namespaces/${namespace}/sandboxclaims`;
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const selector = selectorOf(installation);
  /** Those of the pool do not know yet whose they will be. */
  const podSelector = pool ? `${LABELS.installation}=${installation}` : selector;

  /** Claims whose Sandbox has our labels, which the watch may have yet to tell. */
  const taken = new Set<string>();

  const isOurs = (object: KubernetesObject | undefined) => object?.metadata.labels?.[LABELS.installation] === installation;

  async function listOf<T>(path: string, labelSelector: string, action: string, signal?: AbortSignal): Promise<T[]> {
    return ((await client.json('GET', path, { action, query: { labelSelector }, signal })) as List<T>).items;
  }

  async function read<T extends KubernetesObject>(path: string, action: string, signal?: AbortSignal): Promise<T | undefined> {
    return (await client.json('GET', path, { action, allow: [404], signal })) as T | undefined;
  }

  /** The Sandbox and the claim that there are of a sandbox. */
  async function look(id: SandboxId, signal?: AbortSignal): Promise<{ sandbox?: Sandbox; claim?: SandboxClaim }> {
    const action = `look at sandbox "${id}"`;
    const [[sandbox], claim] = await Promise.all([
      listOf<Sandbox>(sandboxes, selectorOf(installation, id), action, signal),
      pool && read<SandboxClaim>(`${claims}/${objectName(id)}`, action, signal),
    ]);
    return { sandbox, ...(isOurs(claim) && { claim }) };
  }

  async function patch(path: string, body: object, action: string, options: { allow?: number[]; signal?: AbortSignal } = {}) {
    await client.json('PATCH', path, { action, body, type: MERGE_PATCH, ...options });
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
        listOf<Pod>(pods, selectorOf(installation, id), action, signal),
      ]);
      const workload = sandbox ?? claim;
      if (!workload) return undefined;
      if (!sandbox || !claimOf(sandbox)) return { workload, pods: podsOf(workload, labelled) };
      const pod = await read<Pod>(`${pods}/${sandbox.metadata.annotations?.[POD_NAME] ?? sandbox.metadata.name}`, action, signal);
      return { workload, pods: pod ? podsOf(workload, [pod]) : [] };
    },

    async exists(id) {
      const { sandbox, claim } = await look(id);
      return (sandbox ?? claim) !== undefined;
    },

    async list({ signal } = {}) {
      const action = 'list sandboxes';
      const [made, claimed, running] = await Promise.all([
        listOf<Sandbox>(sandboxes, selector, action, signal),
        pool ? listOf<SandboxClaim>(claims, selector, action, signal) : [],
        listOf<Pod>(pods, podSelector, action, signal),
      ]);
      const found = new Map<SandboxId, Found & { id: SandboxId }>();
      for (const workload of [...claimed, ...made]) {
        const id = sandboxOf(workload);
        if (id !== undefined) found.set(id, { id, workload, pods: podsOf(workload, running) });
      }
      return [...found.values()];
    },

    async create(id, spec, incarnation, { signal, ...options }) {
      const action = `create sandbox "${id}"`;
      const from = pool?.fitting(spec, options);
      const shutdownTime = moment(client.now() + options.leaseSeconds * 1000);
      const body =
        from === undefined
          ? renderSandbox(id, spec, incarnation, { ...options, storage, nowMs: client.now() })
          : {
              apiVersion: EXTENSIONS_VERSION,
              kind: 'SandboxClaim',
              metadata: workloadMetadata(id, spec, incarnation, options),
              spec: { warmPoolRef: { name: from }, lifecycle: { shutdownTime, shutdownPolicy: 'DeleteForeground' } },
            };
      try {
        return (await client.json('POST', from === undefined ? sandboxes : claims, { action, body, signal })) as Sandbox | SandboxClaim;
      } catch (error) {
        const { sandbox, claim } = isCayError(error, 'conflict') ? await look(id, signal) : {};
        const made = sandbox ?? claim;
        if (made) return made;
        throw error;
      }
    },

    async takeOver(claim, { signal } = {}) {
      const name = isClaim(claim) ? claim.status?.sandbox?.name : undefined;
      if (name === undefined || taken.has(claim.metadata.uid)) return;
      const action = `take over "${name}"`;
      const given = await read<Sandbox>(`${sandboxes}/${name}`, action, signal);
      if (!given || !isOwnedBy(given, claim) || isOurs(given)) return;
      const { labels, annotations = {} } = claim.metadata;
      const ours = Object.fromEntries(Object.entries(annotations).filter(([key]) => key.startsWith(OURS)));
      const body = { metadata: { uid: given.metadata.uid, labels, annotations: ours } };
      await faultPoint('agent-sandbox.claim.given');
      await patch(`${sandboxes}/${name}`, body, action, { signal });
      taken.add(claim.metadata.uid);
      await faultPoint('agent-sandbox.claim.taken');
    },

    async note(workload, standing, { signal } = {}) {
      const { name, uid } = workload.metadata;
      const action = `note how "${name}" stands`;
      const { metadata } = standingPatch(standing);
      const claim = claimOf(workload);
      const operatingMode = standing.mark === 'stopped' ? 'Suspended' : 'Running';
      // Nothing is noted on one of the same name that was made meanwhile.
      const body = { metadata: { ...metadata, uid }, ...(keepsFiles(workload) && { spec: { operatingMode } }) };
      await Promise.all([
        patch(`${isClaim(workload) ? claims : sandboxes}/${name}`, body, action, { signal }),
        // So that it tells of its loss if somebody removes the Sandbox that was given for it.
        claim && patch(`${claims}/${claim.name}`, { metadata: { ...metadata, uid: claim.uid } }, action, { allow: [404, 409], signal }),
      ]);
    },

    leftSeconds(workload: Sandbox | SandboxClaim) {
      // The lease of what was claimed is its claim's, which nobody looks at: it is renewed at every turn.
      if (claimOf(workload)) return 0;
      const until = isClaim(workload) ? workload.spec?.lifecycle?.shutdownTime : (workload as Sandbox).spec?.shutdownTime;
      return (Date.parse(until ?? '') - client.now()) / 1000 || 0;
    },

    async renew(workload, leaseSeconds) {
      const shutdownTime = moment(client.now() + leaseSeconds * 1000);
      const claim = isClaim(workload) ? workload.metadata : claimOf(workload);
      const { name, uid } = claim ?? workload.metadata;
      const body = { metadata: { uid }, spec: claim ? { lifecycle: { shutdownTime } } : { shutdownTime } };
      await patch(`${claim ? claims : sandboxes}/${name}`, body, `renew the lease of "${name}"`, { allow: [404, 409] });
    },

    async remove(id, { signal } = {}) {
      const { sandbox, claim } = await look(id, signal);
      const owner = claim?.metadata ?? (sandbox && claimOf(sandbox));
      const { name, uid } = owner ?? sandbox?.metadata ?? {};
      if (name === undefined) return false;
      taken.delete(uid ?? '');
      const body = { propagationPolicy: 'Foreground', preconditions: { uid } };
      const path = `${owner ? claims : sandboxes}/${name}`;
      await client.json('DELETE', path, { action: `remove sandbox "${id}"`, body, allow: [404, 409], signal });
      return true;
    },
  };
}
