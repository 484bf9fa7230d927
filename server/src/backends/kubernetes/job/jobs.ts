/** The Jobs of one installation in one namespace. */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { MERGE_PATCH } from '../client/kubernetes-client.ts';
import { besideSelector, LABELS, sandboxOf, selectorOf } from '../client/names.ts';
import type { Job, List, Pod } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import { statusPatch } from '../workloads/workload-status.ts';
import { adoption, newestOf, podsOf, supersededOf, type Workloads } from '../workloads/workload.ts';
import { deadlineIn, renderJob, usedSeconds, whyOver } from './job.ts';
import type { JobPool } from './job-pool.ts';

/** The label that the Job controller gives to the pods of a Job. */
const JOB_NAME = 'batch.kubernetes.io/job-name';

export function kubernetesJobs(
  { client, namespace, installation }: Pick<Place, 'client' | 'namespace' | 'installation'>,
  pool?: JobPool,
): Workloads {
  const jobs = `/apis/batch/v1/namespaces/${namespace}/jobs`;
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const selector = selectorOf(installation);
  /** Pods of a warm pool carry no sandbox's label, and never do. */
  const podSelector = `${LABELS.installation}=${installation}`;

  /** By label, because a Job that comes from a warm pool has a name of the pool's. */
  async function labelled(id: SandboxId, signal?: AbortSignal): Promise<Job[]> {
    const query = { labelSelector: selectorOf(installation, id) };
    const { items } = (await client.json('GET', jobs, {
      action: `look at sandbox "${id}"`,
      query,
      signal,
    })) as List<Job>;
    return items;
  }

  async function podsWith(labelSelector: string, action: string, signal?: AbortSignal): Promise<Pod[]> {
    return ((await client.json('GET', pods, { action, query: { labelSelector }, signal })) as List<Pod>)
      .items;
  }

  async function remove({ metadata }: Job, action: string, signal?: AbortSignal): Promise<void> {
    await client.json('DELETE', `${jobs}/${metadata.name}`, {
      action,
      body: { propagationPolicy: 'Foreground', preconditions: { uid: metadata.uid } },
      allow: [404, 409],
      signal,
    });
  }

  async function jobsWith(labelSelector: string, action: string, signal?: AbortSignal): Promise<Job[]> {
    return ((await client.json('GET', jobs, { action, query: { labelSelector }, signal })) as List<Job>)
      .items;
  }

  return {
    collections: [{ path: jobs, what: 'sandboxes', selector }],
    pods: { path: pods, what: 'pods of sandboxes', selector: podSelector },
    whyOver,
    keepsFiles: () => false,

    async find(id, { signal } = {}) {
      const action = `look at sandbox "${id}"`;
      const [made, own] = await Promise.all([
        labelled(id, signal),
        podsWith(selectorOf(installation, id), action, signal),
      ]);
      const job = newestOf(made);
      if (!job) return undefined;
      const pooled = job.metadata.labels?.[LABELS.pool] !== undefined;
      const found = pooled ? await podsWith(`${JOB_NAME}=${job.metadata.name}`, action, signal) : own;
      return { workload: job, pods: podsOf(job, found) };
    },

    exists: async (id) => (await labelled(id)).length > 0,

    async list({ signal } = {}) {
      const action = 'list sandboxes';
      const [found, made] = await Promise.all([
        jobsWith(selector, action, signal),
        podsWith(podSelector, action, signal),
      ]);
      const superseded = new Set(supersededOf(found));
      return found.flatMap((job) => {
        if (superseded.has(job)) return [];
        const id = sandboxOf(job);
        return id === undefined ? [] : [{ id, workload: job, pods: podsOf(job, made) }];
      });
    },

    async create(id, spec, incarnation, { signal, ...options }) {
      const claimed = options.beside
        ? undefined
        : await pool?.claim(id, spec, incarnation, { signal, ...options });
      if (claimed) return claimed;
      try {
        const body = renderJob(id, spec, incarnation, options);
        return (await client.json('POST', jobs, { action: `create sandbox "${id}"`, body, signal })) as Job;
      } catch (error) {
        const made = isCayError(error, 'conflict') ? newestOf(await labelled(id, signal)) : undefined;
        if (made) return made;
        throw error;
      }
    },

    async note({ metadata }, status, { signal } = {}) {
      const body = statusPatch(status);
      // Nothing is noted on a Job of the same name that was made meanwhile.
      Object.assign(body.metadata, { uid: metadata.uid });
      await client.json('PATCH', `${jobs}/${metadata.name}`, {
        action: `write the status of "${metadata.name}"`,
        body,
        type: MERGE_PATCH,
        signal,
      });
    },

    async reread({ metadata: { name, uid } }, { signal } = {}) {
      const action = `look at "${name}"`;
      const job = (await client.json('GET', `${jobs}/${name}`, { action, allow: [404], signal })) as
        | Job
        | undefined;
      return job?.metadata.uid === uid ? job : undefined;
    },

    async adopt({ metadata: { name, uid } }, id, status, { signal } = {}) {
      const body = adoption(id, status);
      Object.assign(body.metadata, { uid });
      await client.json('PATCH', `${jobs}/${name}`, {
        action: `make "${name}" the sandbox "${id}"`,
        body,
        type: MERGE_PATCH,
        signal,
      });
    },

    removeOne: (workload, { signal } = {}) => remove(workload, `remove "${workload.metadata.name}"`, signal),

    async leftOver(maker, { signal } = {}) {
      const action = 'look for what was left beside sandboxes';
      const [beside, all] = await Promise.all([
        jobsWith(besideSelector(installation, maker), action, signal),
        jobsWith(selector, action, signal),
      ]);
      return [...beside, ...supersededOf(all)].map((job) => ({
        ...job,
        path: `${jobs}/${job.metadata.name}`,
      }));
    },

    leftSeconds(job: Job) {
      return (job.spec?.activeDeadlineSeconds ?? 0) - usedSeconds(job, client.now());
    },

    async renew(job, leaseSeconds) {
      const { name, uid } = job.metadata;
      const activeDeadlineSeconds = deadlineIn(leaseSeconds, job, client.now());
      await client.json('PATCH', `${jobs}/${name}`, {
        action: `renew the lease of "${name}"`,
        body: { metadata: { uid }, spec: { activeDeadlineSeconds } },
        type: MERGE_PATCH,
        allow: [404, 409],
      });
    },

    async remove(id, { signal } = {}) {
      const found = await labelled(id, signal);
      for (const job of found) await remove(job, `remove sandbox "${id}"`, signal);
      return found.length > 0;
    },
  };
}
