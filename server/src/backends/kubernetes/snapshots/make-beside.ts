/**
 * Makes a workload with the files of a snapshot, beside a sandbox or before there is one. It belongs to no
 * sandbox until it is adopted by one change of its labels. A failure before that leaves the sandbox as it
 * was, and the sweep removes the workloads of a killed server.
 */
import { randomBytes } from 'node:crypto';
import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { ignoreFailure, inBackground } from '../../../lib/in-background.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import type { CallScope, Observation } from '../../backend.ts';
import { requireWanted } from '../../support/check.ts';
import { USER } from '../../support/sandbox-user.ts';
import { objectName } from '../client/names.ts';
import type { Pod } from '../client/objects.ts';
import type { Live } from '../links/guest-links.ts';
import type { Runtime } from '../runtimes.ts';
import { ANSWER_MS, awaitGuest, LOOK_AGAIN_MS } from '../workloads/await-guest.ts';
import { mountPoints } from '../workloads/pod-mounts.ts';
import { directoriesOf } from '../workloads/pod-spec.ts';
import { containerOf } from '../workloads/pod-state.ts';
import { makeWorkdir } from '../workloads/start-workload.ts';
import { statusOf, type Mark } from '../workloads/workload-status.ts';
import { workloadOptionsOf, type Workload } from '../workloads/workload.ts';
import type { StoredSnapshot } from './snapshot-store.ts';
import type { TravelContext } from './travel-context.ts';
import { COPY_MS } from './take-snapshot.ts';
import { onlyIn } from './tree-entries.ts';

export const BESIDE_FAULTS = [
  'kubernetes.beside.made',
  'kubernetes.beside.filled',
  'kubernetes.beside.adopted',
] as const;

export interface BesideWanted extends CallScope {
  id: SandboxId;
  spec: SandboxSpec;
  runtime: Runtime;
  incarnation: number;
  from: StoredSnapshot;
}

/**
 * A workload beside the sandbox. Its guest answers, it has the files of the snapshot, and no other process
 * runs in it.
 */
export interface WorkloadBeside {
  readonly workload: Workload;
  readonly live: Live;
  /** Makes it the workload of the sandbox. Rejects if that fails, and removes it then. */
  adopt(mark: Mark, options?: CallScope & { onAdopted?(): void }): Promise<Observation>;
  /** Removes it, unless it was adopted. */
  undo(reason: string): Promise<void>;
}

/** How often in the time of a lease it is renewed. */
const RENEWALS = 4;

export async function makeBeside(context: TravelContext, wanted: BesideWanted): Promise<WorkloadBeside> {
  const { links, namespace, settings, underWay, workloads } = context;
  const { id, spec, runtime, incarnation, from, project, signal } = wanted;
  const name = `${objectName(id)}-${randomBytes(4).toString('hex')}`;
  const beside = { name, maker: await context.store.maker(), parent: from.id, directories: from.directories };
  let workload: Workload | undefined;
  let live: Live | undefined;
  let renewal: NodeJS.Timeout | undefined;
  let isAdopted = false;

  async function undo(reason: string): Promise<void> {
    clearInterval(renewal);
    if (isAdopted) return;
    if (live) links.dismiss(live, reason);
    // The next server sweeps what this one cannot remove any more.
    if (workload && !context.closing.aborted) await workloads.removeOne(workload).catch(ignoreFailure);
    underWay.delete(name);
  }

  async function renew(made: Workload): Promise<void> {
    const now = await workloads.reread(made);
    if (now) await workloads.renew(now, settings.leaseSeconds);
  }

  underWay.add(name);
  try {
    const made = await workloads.create(id, spec, incarnation, {
      ...workloadOptionsOf(context, spec, runtime),
      project,
      signal,
      beside,
    });
    workload = made;
    renewal = setInterval(
      () => inBackground(renew(made), ignoreFailure),
      (settings.leaseSeconds * 1000) / RENEWALS,
    ).unref();
    await faultPoint('kubernetes.beside.made');
    const seen = await awaitGuest(context, made, {
      id,
      spec,
      runtime,
      incarnation,
      hasRun: false,
      isBeside: true,
      signal,
    });
    live = seen.live;
    const { pod } = seen;
    await fill(context, live, pod, wanted);
    await makeWorkdir(live.guest, spec, { signal });
    await faultPoint('kubernetes.beside.filled');
    requireWanted(signal);
    return { workload: made, live, adopt: (mark, options) => adopt(made, pod, mark, options), undo };
  } catch (error) {
    await undo('it could not be made');
    requireWanted(signal);
    throw error;
  }

  async function adopt(
    made: Workload,
    pod: Pod,
    mark: Mark,
    { onAdopted, ...call }: CallScope & { onAdopted?(): void } = {},
  ): Promise<Observation> {
    const restarts = containerOf(pod)?.restartCount ?? 0;
    const status = { incarnation, mark, pod: pod.metadata.uid, restarts } as const;
    await workloads.adopt(made, id, status, call);
    isAdopted = true;
    clearInterval(renewal);
    underWay.delete(name);
    onAdopted?.();
    if (mark === 'ready') links.replace(id, live!, 'it was rolled back');
    else {
      links.dismiss(live!, 'it is stopped');
      links.hangUp(id, 'it was rolled back');
    }
    await faultPoint('kubernetes.beside.adopted');
    // The next observations must be at least as new as this one.
    const view = await context.looking();
    const isSeen = (found: { workload: Workload } | undefined) =>
      (found?.workload.metadata.uid === made.metadata.uid && statusOf(found.workload).mark === mark) ||
      undefined;
    await view.until(id, isSeen, {
      action: `start sandbox "${id}"`,
      withinMs: ANSWER_MS,
      everyMs: LOOK_AGAIN_MS,
    });
    const { nodeName: node } = pod.spec ?? {};
    return {
      id,
      phase: mark === 'ready' ? 'ready' : 'stopped',
      incarnation,
      uid: made.metadata.uid,
      runtime: runtime.name,
      ...(mark === 'ready' && {
        pod: { namespace, name: pod.metadata.name, ...(node !== undefined && { node }) },
      }),
    };
  }
}

/** Unpacks the files into those of its directories that the pod has. */
async function fill(
  { store }: TravelContext,
  { link }: Live,
  pod: Pod,
  { id, spec, from, signal }: BesideWanted,
): Promise<void> {
  const directories = directoriesOf(pod);
  const isIn = (path: string) => directories.some((each) => path === each || path.startsWith(`${each}/`));
  const lost = from.directories.filter((path) => !isIn(path));
  if (lost.length > 0 && spec.readOnlyRoot)
    throw new CayError(
      'unsupported',
      `Cannot make sandbox "${id}" of snapshot "${from.id}" with a read-only root: a pod has no way to have files in ${lost.join(', ')} that it cannot write`,
    );
  const guest = await link.ready({ signal, timeoutMs: ANSWER_MS });
  const tree = onlyIn(store.tree(from.id), directories, { except: mountPoints(spec) });
  await guest.unpack({ user: USER.name, path: '/' }, tree, withDeadline({ signal }, COPY_MS));
}
