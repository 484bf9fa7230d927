import { isCayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { CallOptions } from '../backend.ts';
import type { KubernetesClient } from '../kubernetes/kubernetes-client.ts';
import { LABELS, objectName, sandboxOf, selectorOf } from '../kubernetes/names.ts';
import type { Job, List, Pod } from '../kubernetes/objects.ts';
import { renderJob, standingPatch, type JobOptions, type Standing } from './job.ts';
import { podsOf, type Found } from './job-state.ts';

/** The Jobs of one installation in one namespace. */
export interface Jobs {
  /** Of the collections, for watches. */
  readonly paths: { jobs: string; pods: string };
  find(id: SandboxId, options?: CallOptions): Promise<Found | undefined>;
  exists(id: SandboxId): Promise<boolean>;
  list(options?: CallOptions): Promise<(Found & { id: SandboxId })[]>;
  /** Makes the Job, or finds the one that an earlier call has made. */
  create(id: SandboxId, spec: SandboxSpec, incarnation: number, options: JobOptions & CallOptions): Promise<Job>;
  note(job: Job, standing: Standing, options?: CallOptions): Promise<void>;
  /** Has the cluster keep the Job for that many seconds more. */
  renew(job: Job, leaseSeconds: number): Promise<void>;
  /** Asks the cluster to remove it with all that it has. Resolves whether there was one. */
  remove(id: SandboxId, options?: CallOptions): Promise<boolean>;
}

const MERGE = 'application/merge-patch+json';

export function kubernetesJobs(client: KubernetesClient, { namespace, installation }: { namespace: string; installation: string }): Jobs {
  const jobs = `/apis/batch/v1/namespaces/${namespace}/jobs`;
  const pods = `/api/v1/namespaces/${namespace}/pods`;

  async function read(id: SandboxId, signal?: AbortSignal): Promise<Job | undefined> {
    const job = (await client.json('GET', `${jobs}/${objectName(id)}`, { action: `look at sandbox "${id}"`, allow: [404], signal })) as
      | Job
      | undefined;
    return job?.metadata.labels?.[LABELS.installation] === installation ? job : undefined;
  }

  return {
    paths: { jobs, pods },

    async find(id, { signal } = {}) {
      const query = { labelSelector: selectorOf(installation, id) };
      const [job, list] = await Promise.all([
        read(id, signal),
        client.json('GET', pods, { action: `look at sandbox "${id}"`, query, signal }) as Promise<List<Pod>>,
      ]);
      return job && { job, pods: podsOf(job, list.items) };
    },

    exists: async (id) => (await read(id)) !== undefined,

    async list({ signal } = {}) {
      const call = { action: 'list sandboxes', query: { labelSelector: selectorOf(installation) }, signal };
      const [found, made] = await Promise.all([
        client.json('GET', jobs, call) as Promise<List<Job>>,
        client.json('GET', pods, call) as Promise<List<Pod>>,
      ]);
      return found.items.flatMap((job) => {
        const id = sandboxOf(job);
        return id === undefined ? [] : [{ id, job, pods: podsOf(job, made.items) }];
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

    async note({ metadata }, standing, { signal } = {}) {
      const body = { ...standingPatch(standing) };
      // Nothing is noted on a Job of the same name that was made meanwhile.
      Object.assign((body as { metadata: object }).metadata, { uid: metadata.uid });
      await client.json('PATCH', `${jobs}/${metadata.name}`, { action: `note how "${metadata.name}" stands`, body, type: MERGE, signal });
    },

    async renew({ metadata, status }, leaseSeconds) {
      const startedMs = Date.parse(status?.startTime ?? metadata.creationTimestamp ?? '');
      const usedSeconds = Math.max(0, Math.ceil((client.now() - startedMs) / 1000));
      const body = { metadata: { uid: metadata.uid }, spec: { activeDeadlineSeconds: usedSeconds + leaseSeconds } };
      await client.json('PATCH', `${jobs}/${metadata.name}`, {
        action: `renew the lease of "${metadata.name}"`,
        body,
        type: MERGE,
        allow: [404, 409],
      });
    },

    async remove(id, { signal } = {}) {
      const job = await read(id, signal);
      if (!job) return false;
      const body = { propagationPolicy: 'Foreground', preconditions: { uid: job.metadata.uid } };
      await client.json('DELETE', `${jobs}/${job.metadata.name}`, { action: `remove sandbox "${id}"`, body, allow: [404, 409], signal });
      return true;
    },
  };
}
