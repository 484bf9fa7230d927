/** The files of a sandbox, packed by its guest while nothing else runs in it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { faultPoint } from '../../../lib/fault-point.ts';
import { ignoreFailure } from '../../../lib/in-background.ts';
import { withDeadline } from '../../../lib/timeout.ts';
import type { GuestClient } from '../../../guest/guest-client.ts';
import { isAway, type CallScope, type SnapshotFacts } from '../../backend.ts';
import { checkedTree } from '../../support/checked-tree.ts';
import { requireWanted } from '../../support/check.ts';
import { USER } from '../../support/sandbox-user.ts';
import { ANNOTATIONS } from '../client/names.ts';
import type { Pod } from '../client/objects.ts';
import { reachGuest } from '../links/reach-guest.ts';
import { ANSWER_MS } from '../workloads/await-guest.ts';
import { limitsOf } from '../workloads/limits-of.ts';
import { mountPoints } from '../workloads/pod-mounts.ts';
import { directoriesOf } from '../workloads/pod-spec.ts';
import { isRunning } from '../workloads/pod-state.ts';
import { GUEST_ANSWER_MS } from '../workloads/start-workload.ts';
import type { Found } from '../workloads/workload.ts';
import { STORE_FAULTS } from './snapshot-store.ts';
import type { TravelContext } from './travel-context.ts';
import { bounded, mostTreeBytes, onlyIn, packedNames, unlessSilent, withParents } from './tree-entries.ts';

export const SNAPSHOT_FAULTS = ['kubernetes.snapshot.still', ...STORE_FAULTS] as const;

/**
 * How long a pod may take to run again: a node waits a little before it starts a container that has ended.
 */
const RUNS_AGAIN_MS = 60_000;
const LOOK_AGAIN_MS = 250;
/** A program that took the place of the guest may send a little, or nothing, without an end. */
const SILENT_MS = 60_000;
export const COPY_MS = 3_600_000;

export async function takeSnapshot(
  context: TravelContext,
  id: SandboxId,
  snapshot: SnapshotId,
  scope: CallScope,
): Promise<SnapshotFacts> {
  const { store, specs, workloads } = context;
  const action = `take a snapshot of sandbox "${id}"`;
  requireWanted(scope.signal);
  const found = await workloads.find(id, scope);
  if (!found) throw new CayError('not_found', `Cannot ${action}: it does not exist`);
  const there = await store.find(snapshot);
  if (there?.sandbox === id) return factsOf(there);
  if (there) throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
  const { phase, frozen } = context.observed(id, found);
  if (phase === 'starting') throw new CayError('failed_precondition', `Cannot ${action}: it is ${phase}`);
  const spec = await specs.read(id, found.workload.metadata.annotations?.[ANNOTATIONS.specHash]);
  await using reached =
    phase === 'ready' ? await ready(context, id, scope) : await resting(context, id, found, scope);
  const { guest, pod } = reached;
  const directories = directoriesOf(pod);
  const mounted = mountPoints(spec);
  const still =
    phase === 'ready' && !frozen ? await guest.still(withDeadline(scope, GUEST_ANSWER_MS)) : undefined;
  try {
    await faultPoint('kubernetes.snapshot.still');
    const copying = withDeadline(scope, COPY_MS);
    const paths = { paths: packedNames(directories), except: packedNames(mounted) };
    const packed = guest.pack({ user: USER.name, path: '/', ...paths }, copying);
    const heard = unlessSilent(packed, SILENT_MS, action);
    const files = bounded(heard, mostTreeBytes(context.mostBytes(spec)), action);
    // A guest of an earlier version packs what is mounted too.
    const own = mounted.length > 0 ? onlyIn(files, directories, { except: mounted }) : files;
    const tree = withParents(checkedTree(own, { allowMarks: true }), directories);
    const finish = async () => {
      if (still?.isOver)
        throw new CayError('unavailable', `Cannot ${action}: its guest has let it go on meanwhile`);
    };
    return factsOf(
      await store.keep({ id: snapshot, sandbox: id, spec, directories }, tree, { ...scope, finish }),
    );
  } catch (error) {
    requireWanted(scope.signal);
    if (!isCayError(error, 'invalid_argument')) throw error;
    // A defect in what a guest sends is not the caller's fault.
    throw new CayError('unavailable', `Cannot ${action}: its guest sent no tree of files: ${error.message}`, {
      cause: error,
    });
  } finally {
    still?.release();
  }
}

export function factsOf({ id, sandbox, spec, fileBytes }: SnapshotFacts): SnapshotFacts {
  return { id, sandbox, spec, memory: false, ...(fileBytes !== undefined && { fileBytes }) };
}

interface Reached extends AsyncDisposable {
  guest: GuestClient;
  pod: Pod;
}

async function ready(context: TravelContext, id: SandboxId, scope: CallScope): Promise<Reached> {
  const { link, pod: uid } = await reachGuest(context, id, `take a snapshot of sandbox "${id}"`, scope);
  const guest = await link.ready({ signal: scope.signal, timeoutMs: ANSWER_MS });
  const found = await context.workloads.find(id, scope);
  const pod = found?.pods.find(({ metadata }) => metadata.uid === uid);
  if (!pod) throw new CayError('unavailable', `Cannot take a snapshot of sandbox "${id}": its pod is gone`);
  return { guest, pod, async [Symbol.asyncDispose]() {} };
}

/** The guest of a sandbox in which no process runs. A sandbox that has files and no pod gets another pod. */
async function resting(
  context: TravelContext,
  id: SandboxId,
  found: Found,
  scope: CallScope,
): Promise<Reached> {
  const { links, workloads } = context;
  const action = `take a snapshot of sandbox "${id}"`;
  const isAsleep = found.pods.length === 0 && workloads.keepsFiles(found.workload);
  if (isAsleep) await workloads.setRunning?.(found.workload, true, scope);
  const rest = async () => {
    if (!isAsleep) return;
    await workloads.setRunning?.(found.workload, false).catch(ignoreFailure);
    const view = await context.looking();
    const isGone = (now: Found | undefined) => now === undefined || now.pods.length === 0 || undefined;
    await view.until(id, isGone, { action, withinMs: RUNS_AGAIN_MS, everyMs: 1_000 }).catch(ignoreFailure);
  };
  try {
    const pod = await runningPod(context, id, scope, isAsleep);
    const { incarnation } = context.observed(id, found);
    const live = links.openBeside({ id, pod, incarnation, limits: limitsOf(found) });
    try {
      const guest = await live.link.ready({ signal: scope.signal, timeoutMs: ANSWER_MS });
      return {
        guest,
        pod,
        async [Symbol.asyncDispose]() {
          links.dismiss(live, 'its snapshot was taken');
          await rest();
        },
      };
    } catch (error) {
      links.dismiss(live, 'it could not be reached');
      throw error;
    }
  } catch (error) {
    await rest();
    throw error;
  }
}

async function runningPod(
  { workloads }: TravelContext,
  id: SandboxId,
  scope: CallScope,
  isWaking: boolean,
): Promise<Pod> {
  const action = `take a snapshot of sandbox "${id}"`;
  const deadline = Date.now() + RUNS_AGAIN_MS;
  for (;;) {
    requireWanted(scope.signal);
    const found = await workloads.find(id, scope).catch((error: unknown) => {
      if (isAway(error) && Date.now() < deadline) return undefined;
      throw error;
    });
    const pod = found?.pods.find(isRunning);
    if (pod) return pod;
    const mayCome =
      isWaking ||
      found?.pods.some(
        ({ metadata, status }) =>
          metadata.deletionTimestamp === undefined &&
          status?.phase !== 'Failed' &&
          status?.phase !== 'Succeeded',
      );
    if (found && !mayCome)
      throw new CayError('failed_precondition', `Cannot ${action}: its pod is gone, and its files with it`, {
        details: { reason: 'files_lost' },
      });
    if (Date.now() > deadline)
      throw new CayError('unavailable', `Cannot ${action}: its pod does not run again`);
    await sleep(LOOK_AGAIN_MS);
  }
}
