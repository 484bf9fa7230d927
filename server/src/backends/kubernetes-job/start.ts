/** Makes a sandbox run that was absent, stopped, failed or left half-started. */
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { CallOptions, Observation } from '../backend.ts';
import type { Job, Pod } from '../kubernetes/objects.ts';
import { containerOf, isRunning, whyNotStarting } from '../kubernetes/pod-state.ts';
import type { Runtime } from '../kubernetes/runtimes.ts';
import { troubleOf } from '../kubernetes/troubles.ts';
import { USER } from '../sandbox-user.ts';
import { startMain } from '../start-main.ts';
import { endJob } from './end.ts';
import type { JobGround } from './ground.ts';
import { jobOptionsOf, standingOf } from './job.ts';
import { whyOver, type Found } from './job-state.ts';

/** How long a started guest has to answer. */
export const ANSWER_MS = 30_000;
/** How long a pod may take to start; most of it is for the image. */
const START_MS = 300_000;
/** How long a cluster may look for a node before that is an error. */
const SCHEDULE_MS = 10_000;
const LOOK_AGAIN_MS = 1_000;

interface Wanted extends CallOptions {
  id: SandboxId;
  spec: SandboxSpec;
  runtime: Runtime;
}

/** `before` is what there is of it. When this rejects, what was begun is undone. */
export async function startJob(ground: JobGround, before: Found | undefined, wanted: Wanted): Promise<Observation> {
  const { jobs, links } = ground;
  const { id, spec, runtime, ...call } = wanted;
  const last = before && standingOf(before.job);
  const hasRun = last !== undefined && last.mark !== 'starting';
  const incarnation = (last?.incarnation ?? 1) + (hasRun ? 1 : 0);
  // A Job that is over keeps nothing that could go on, nor does one whose pod has ended.
  const lost = hasRun && !before?.pods.some(goesOn);
  const kept = before && !lost && !whyOver(before.job) ? before.job : undefined;
  let job = kept;
  try {
    if (before && !kept) await endJob(ground, id, call);
    if (kept && hasRun) await jobs.note(kept, { incarnation, mark: 'starting', restarts: 0 }, call);
    job ??= await jobs.create(id, spec, incarnation, { ...jobOptionsOf(ground, spec, runtime), ...call });
    return await finish(ground, job, { ...wanted, incarnation, hasRun: kept !== undefined && hasRun });
  } catch (error) {
    if (ground.closing.aborted) throw error;
    links.hangUp(id, 'it could not be started');
    if (!kept) await endJob(ground, id);
    else {
      const pod = (await jobs.find(id).catch(() => undefined))?.pods.at(-1);
      await jobs.note(kept, { incarnation, mark: 'stopped', pod: pod?.metadata.uid, restarts: 0 }).catch(() => {});
    }
    throw error;
  }
}

/** Waits for the guest of a Job that was made or is to go on, and notes that it is ready. */
async function finish(ground: JobGround, job: Job, wanted: Wanted & { incarnation: number; hasRun: boolean }): Promise<Observation> {
  const { jobs, links, looking } = ground;
  const { id, spec, runtime, incarnation, hasRun, ...call } = wanted;
  let pod = await running(ground, job, { id, hasRun, ...call });
  const { limits } = spec;
  const { link, guest } = links.open({
    id,
    pod,
    incarnation,
    limits,
    openFilesLimit: limits.openFiles,
    ...(runtime.gvisor && { memoryLimit: limits.memoryBytes, pidsLimit: limits.pids }),
  });
  await link.ready({ ...call, timeoutMs: ANSWER_MS });
  if (!spec.readOnlyRoot && spec.workdir !== '/') await guest.files(USER.name).mkdir(spec.workdir, call);
  await startMain(guest, spec);
  // A watch may be behind: how often the container was started again has to be right, or the next look takes it for a crash.
  if (hasRun) pod = (await jobs.find(id, call))?.pods.find(({ metadata }) => metadata.uid === pod.metadata.uid) ?? pod;
  await jobs.note(job, { incarnation, mark: 'ready', pod: pod.metadata.uid, restarts: containerOf(pod)?.restartCount ?? 0 }, call);
  // What is told from now on must not be older than this.
  await (
    await looking()
  ).until(id, (found) => (found && standingOf(found.job).mark === 'ready') || undefined, {
    action: `start sandbox "${id}"`,
    withinMs: ANSWER_MS,
    everyMs: LOOK_AGAIN_MS,
  });
  return { id, phase: 'ready', incarnation, runtime: runtime.name };
}

/** Waits for a pod of the Job that runs. */
async function running(
  { client, namespace, looking }: JobGround,
  job: Job,
  { id, hasRun, signal }: CallOptions & { id: SandboxId; hasRun: boolean },
): Promise<Pod> {
  const action = `start sandbox "${id}"`;
  const startedAt = Date.now();
  const options = { action, withinMs: START_MS, everyMs: LOOK_AGAIN_MS, signal };
  return (await looking()).until(
    id,
    async (found) => {
      // What is seen of an earlier Job of that name says nothing.
      if (found?.job.metadata.uid !== job.metadata.uid) return undefined;
      const over = whyOver(found.job);
      if (over) throw new CayError('unavailable', `Cannot ${action}: ${over.message}`, { details: { reason: 'start_failed' } });
      const pod = newest(found.pods.filter(goesOn)) ?? newest(found.pods);
      if (pod && isRunning(pod)) return pod;
      const why = pod && whyNotStarting(pod, action, { hasRun });
      const patient = why?.details['reason'] === 'unschedulable' && Date.now() - startedAt < SCHEDULE_MS;
      if (why && !patient) throw why;
      if (Date.now() - startedAt < LOOK_AGAIN_MS) return undefined;
      const trouble = await troubleOf(client, { namespace, uid: pod?.metadata.uid ?? job.metadata.uid, action, signal });
      if (trouble) throw trouble;
      return undefined;
    },
    options,
  );
}

/** Runs, or may still come to. */
function goesOn({ metadata, status }: Pod): boolean {
  return metadata.deletionTimestamp === undefined && status?.phase !== 'Failed' && status?.phase !== 'Succeeded';
}

function newest(pods: Pod[]): Pod | undefined {
  return pods.toSorted((one, other) => (one.metadata.creationTimestamp ?? '').localeCompare(other.metadata.creationTimestamp ?? '')).at(-1);
}
