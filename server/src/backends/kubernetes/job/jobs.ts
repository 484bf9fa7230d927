/** The Jobs of one installation in one namespace. */
import { isCayError, type SandboxId } from '@cay/sdk/protocol';
import { MERGE_PATCH } from '../client/kubernetes-client.ts';
import { LABELS, objectName, sandboxOf, selectorOf } from '../client/names.ts';
import type { Job, List, Pod } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import { statusPatch } from '../workloads/workload-status.ts';
import { podsOf, type Workloads } from '../workloads/workload.ts';
import { renderJob, whyOver } from './job.ts';

export function kubernetesJobs({
  client,
  namespace,
  installation,
}: Pick<Place, 'client' | 'namespace' | 'installation'>): Workloads {
  const jobs = `/apis/batch/v1/namespaces/${namespace}/jobs`;
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  const selector = selectorOf(installation);
  const startedMs = ({ status, metadata }: Job) =>
    Date.parse(status?.startTime ?? metadata.creationTimestamp ?? '');

  async function read(id: SandboxId, signal?: AbortSignal): Promise<Job | undefined> {
    const job = (await client.json('GET', `${jobs}/${objectName(id)}`, {
      action: `look at sandbox "${id}"`,
      allow: [404],
      signal,
    })) as Job | undefined;
    return job?.metadata.labels?.[LABELS.installation] === installation ? job : undefined;
  }

  return {
    collections: [{ path: jobs, what: 'sandboxes', selector }],
    pods: { path: pods, what: 'pods of sandboxes', selector },
    whyOver,
    keepsFiles: () => false,

    async find(id, { signal } = {}) {
      const query = { labelSelector: selectorOf(installation, id) };
      const [job, list] = await Promise.all([
        read(id, signal),
        client.json('GET', pods, { action: `look at sandbox "${id}"`, query, signal }) as Promise<List<Pod>>,
      ]);
      return job && { workload: job, pods: podsOf(job, list.items) };
    },

    exists: async (id) => (await read(id)) !== undefined,

    async list({ signal } = {}) {
      const call = { action: 'list sandboxes', query: { labelSelector: selector }, signal };
      const [found, made] = await Promise.all([
        client.json('GET', jobs, call) as Promise<List<Job>>,
        client.json('GET', pods, call) as Promise<List<Pod>>,
      ]);
      return found.items.flatMap((job) => {
        const id = sandboxOf(job);
        return id === undefined ? [] : [{ id, workload: job, pods: podsOf(job, made.items) }];
      });
    },

    async create(id, spec, incarnation, { signal, ...options }) {
      try {
        const body = renderJob(id, spec, incarnation, options);
        return (await client.json('POST', jobs, { action: `create sandbox "${id}"`, body, signal })) as Job;
      } catch (error) {
        const made = isCayError(error, 'conflict') ? await read(id, signal) : undefined;
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

    leftSeconds(job: Job) {
      return (job.spec?.activeDeadlineSeconds ?? 0) - (client.now() - startedMs(job)) / 1000;
    },

    async renew(job, leaseSeconds) {
      const { name, uid } = job.metadata;
      const usedSeconds = Math.max(0, Math.ceil((client.now() - startedMs(job)) / 1000));
      const body = { metadata: { uid }, spec: { activeDeadlineSeconds: usedSeconds + leaseSeconds } };
      await client.json('PATCH', `${jobs}/${name}`, {
        action: `renew the lease of "${name}"`,
        body,
        type: MERGE_PATCH,
        allow: [404, 409],
      });
    },

    async remove(id, { signal } = {}) {
      const job = await read(id, signal);
      if (!job) return false;
      const body = { propagationPolicy: 'Foreground', preconditions: { uid: job.metadata.uid } };
      await client.json('DELETE', `${jobs}/${job.metadata.name}`, {
        action: `remove sandbox "${id}"`,
        body,
        allow: [404, 409],
        signal,
      });
      return true;
    },
  };
}
