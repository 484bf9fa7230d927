/**
 * Jobs that run before they are asked for.
 *
 * Each is a Job of the usual pod with the label of the pool and without that of a sandbox: a *spare*. A
 * sandbox that asks for such a pod gets a spare by one patch, which writes everything that the Job of a new
 * sandbox would have, and its lease. The patch names the version of the Job that was seen, so that of two
 * claimants one gets it. A spare that a sandbox has got is a Job like any other, and nothing leads back.
 *
 * Spares have leases as all Jobs have: without a server the cluster ends them.
 */
import { randomBytes } from 'node:crypto';
import type { SandboxId, SandboxSpec } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { inBackground } from '../../../lib/in-background.ts';
import type { CallScope } from '../../backend.ts';
import { MERGE_PATCH } from '../client/kubernetes-client.ts';
import { mirror, type Mirror } from '../client/mirror.ts';
import { LABELS } from '../client/names.ts';
import type { Job } from '../client/objects.ts';
import type { Place } from '../pod-kind.ts';
import type { Runtime } from '../runtimes.ts';
import { poolDigest, usualPod, type UsualPod } from '../workloads/usual-pod.ts';
import { installationLabels, workloadMetadata, type WorkloadOptions } from '../workloads/workload.ts';
import { deadlineIn, jobSpec, usedSeconds, whyOver } from './job.ts';

export interface JobPool {
  /** Keeps the pool filled with pods of this runtime from now on. Resolves when what exists was seen. */
  keep(runtime: Runtime): Promise<void>;
  /** A spare that has become the Job of this sandbox; `undefined` if none fits or none is ready. */
  claim(
    id: SandboxId,
    spec: SandboxSpec,
    incarnation: number,
    options: WorkloadOptions & CallScope,
  ): Promise<Job | undefined>;
  /** Renews the leases of spares. */
  renew(): Promise<void>;
  close(): void;
}

export interface JobPoolOptions {
  /** How many spares should run. */
  size: number;
  onError(error: unknown): void;
}

interface Kept {
  readonly usual: UsualPod;
  readonly digest: string;
}

/** A claimed sandbox answers its first command before the next spare starts beside it. */
const REFILL_MS = 300;
/** How long after a failure it is tried again. */
const AGAIN_MS = 15_000;
/** Renewed when less than this part of the lease is left. */
const RENEW_BELOW = 0.75;

/** Selects the spares of an installation. */
export function spareSelector(installation: string): string {
  return `${LABELS.installation}=${installation},${LABELS.pool},!${LABELS.sandbox}`;
}

export function jobPool(
  { client, namespace, installation, settings }: Place,
  { size, onError }: JobPoolOptions,
): JobPool {
  const { leaseSeconds } = settings;
  const jobs = `/apis/batch/v1/namespaces/${namespace}/jobs`;
  /**
   * The uids of spares that this server has claimed, or tried to, until the watch shows that they are gone.
   */
  const taken = new Set<string>();
  /** The names of those that were made and that the watch has not shown yet. */
  const coming = new Set<string>();
  let kept: Kept | undefined;
  let spares: Mirror<Job> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let filling = false;
  let closed = false;
  /** The failure that was reported last: the same is not reported again. */
  let reported: string | undefined;

  const isSpare = ({ metadata }: Job) => metadata.deletionTimestamp === undefined && !taken.has(metadata.uid);
  const isGood = (job: Job) =>
    isSpare(job) && job.metadata.labels?.[LABELS.pool] === kept?.digest && !whyOver(job);
  /** In an order that is the same on all servers, so that they agree which ones are too many. */
  const all = () =>
    [...(spares?.objects.values() ?? [])].toSorted((one, other) =>
      one.metadata.uid.localeCompare(other.metadata.uid),
    );

  function fillIn(ms: number): void {
    if (closed) return;
    timer ??= setTimeout(() => {
      timer = undefined;
      inBackground(fill(), onError);
    }, ms).unref();
  }

  /** Makes what is missing, and removes what is too many, over, or made of something else. */
  async function fill(): Promise<void> {
    if (filling || closed || !kept) return;
    filling = true;
    try {
      const good = all().filter(isGood);
      const rest = all().filter((job) => isSpare(job) && !good.includes(job));
      await Promise.all([...rest, ...good.slice(size)].map(remove));
      const { usual, digest } = kept;
      const missing = Math.max(0, size - good.length - coming.size);
      await Promise.all(Array.from({ length: missing }, () => add(usual, digest)));
      reported = undefined;
    } catch (error) {
      const text = String(error);
      if (text !== reported) onError(error);
      reported = text;
      fillIn(AGAIN_MS);
    } finally {
      filling = false;
    }
  }

  async function add({ pod }: UsualPod, digest: string): Promise<void> {
    const labels = { ...installationLabels(installation), [LABELS.pool]: digest };
    const name = `cay-${installation.slice(0, 30)}-${digest}-${randomBytes(4).toString('hex')}`;
    const body = {
      apiVersion: 'batch/v1',
      kind: 'Job',
      metadata: { name, namespace, labels },
      spec: jobSpec(pod, labels, leaseSeconds),
    };
    coming.add(name);
    try {
      await client.json('POST', jobs, { action: 'fill the warm pool', body });
    } catch (error) {
      coming.delete(name);
      throw error;
    }
  }

  async function remove({ metadata: { name, uid, resourceVersion } }: Job): Promise<void> {
    // One that was claimed meanwhile has another version.
    const body = { propagationPolicy: 'Background', preconditions: { uid, resourceVersion } };
    await client.json('DELETE', `${jobs}/${name}`, {
      action: `remove "${name}" of the warm pool`,
      body,
      allow: [404, 409],
    });
  }

  async function claimOne(job: Job, metadata: object, signal?: AbortSignal): Promise<Job | undefined> {
    const { name, uid, resourceVersion } = job.metadata;
    const body = {
      metadata: { ...metadata, uid, resourceVersion },
      spec: { activeDeadlineSeconds: deadlineIn(leaseSeconds, job, client.now()) },
    };
    taken.add(uid);
    return (await client.json('PATCH', `${jobs}/${name}`, {
      action: `take "${name}" of the warm pool`,
      body,
      type: MERGE_PATCH,
      exact: true,
      allow: [404, 409],
      signal,
    })) as Job | undefined;
  }

  return {
    async keep(runtime) {
      if (closed) return;
      const usual = usualPod(settings, runtime);
      kept = { usual, digest: poolDigest(usual.pod) };
      spares ??= mirror<Job>(client, {
        path: jobs,
        what: 'spares of the warm pool',
        selector: spareSelector(installation),
        onChange({ metadata }, gone) {
          coming.delete(metadata.name);
          if (gone) taken.delete(metadata.uid);
          // Another server may have filled it too.
          if (gone || all().length > size) fillIn(REFILL_MS);
        },
      });
      await spares.start();
      fillIn(0);
    },

    async claim(id, spec, incarnation, { signal, ...options }) {
      if (!kept?.usual.fits(spec, options)) return undefined;
      const { name: _, namespace: __, ...metadata } = workloadMetadata(id, spec, incarnation, options);
      for (;;) {
        const job = all().find((each) => isGood(each) && (each.status?.ready ?? 0) > 0);
        if (!job) return undefined;
        const claimed = await claimOne(job, metadata, signal);
        await faultPoint('kubernetes.pool.claimed');
        if (claimed) return claimed;
      }
    },

    async renew() {
      for (const job of all().filter(isGood)) {
        const left = (job as { spec?: { activeDeadlineSeconds?: number } }).spec?.activeDeadlineSeconds ?? 0;
        if (left - usedSeconds(job, client.now()) > leaseSeconds * RENEW_BELOW) continue;
        const { name, uid } = job.metadata;
        await client.json('PATCH', `${jobs}/${name}`, {
          action: `renew the lease of "${name}"`,
          body: {
            metadata: { uid },
            spec: { activeDeadlineSeconds: deadlineIn(leaseSeconds, job, client.now()) },
          },
          type: MERGE_PATCH,
          allow: [404, 409],
        });
      }
      fillIn(0);
    },

    close() {
      closed = true;
      clearTimeout(timer);
      spares?.close();
    },
  };
}
