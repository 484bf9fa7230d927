/**
 * Moves a sandbox to another platform of this server, with its id, its name and its snapshots.
 *
 * 1. the intent is recorded
 * 2. the sandbox is frozen, where the platform can, and a snapshot of it is taken
 * 3. its snapshots are copied, and a sandbox of the same id is made on the other platform
 * 4. one transaction records that it is there
 * 5. what is on the first platform is removed, and the sandbox starts if it was running
 *
 * Until step 4 the sandbox is on the first platform, and what the other one has is left over; after it is the
 * other way round. A server that is killed in between leaves what the next one removes, by the same rule.
 */
import {
  CayError,
  MoveSandboxSchema,
  newId,
  type MoveLoss,
  type SandboxId,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { faultPoint } from '../../lib/fault-point.ts';
import type { MoveOperation, SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { Waker } from '../pausing/wake.ts';
import type { StateRecorder } from '../sandboxes/record-state.ts';
import { scopeOf } from '../sandboxes/scope-of.ts';
import type { SandboxStarter } from '../sandboxes/start-sandbox.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Principal } from '../tenants/principal.ts';
import type { MoveVerbs } from './move.ts';
import { moveSteps } from './move-steps.ts';
import { movePlanner, type PlannedMove } from './plan-move.ts';
import { movableSnapshots } from '../snapshots/movable-snapshots.ts';

export interface Moving extends MoveVerbs {
  /** Gives up a move that an earlier server recorded. Call this from the sandbox's queue. */
  giveUp(row: SandboxRow, operation: MoveOperation): Promise<SandboxRow>;
}

/** How long calls that are inside have to return. */
const CALLS_MS = 2_000;

export function openMoving(
  core: Pick<
    Core,
    | 'activity'
    | 'archives'
    | 'backend'
    | 'capabilitiesOf'
    | 'drainLogs'
    | 'lookup'
    | 'onError'
    | 'operations'
    | 'policy'
    | 'pressure'
    | 'quota'
    | 'recordEvent'
    | 'records'
  > & { registry: SnapshotRegistry; starter: SandboxStarter; state: StateRecorder; waker: Waker },
): Moving {
  const { activity, backend, drainLogs, lookup, onError, operations, pressure, quota } = core;
  const { records, registry, starter, waker } = core;
  const { sandboxes, snapshots } = records;
  const planMove = movePlanner(core);
  const { copySnapshots, removeFrom, recordMoved } = moveSteps(core);

  /** In the sandbox's queue, with its gate closed. */
  async function moveNow(
    id: SandboxId,
    to: string,
    drop: readonly MoveLoss[],
    principal: Principal,
  ): Promise<{ row: SandboxRow; planned: PlannedMove }> {
    const row = await waker.ensureUnarchived(await lookup.reload({ id }));
    const planned = await planMove(row, to, drop);
    requireAccepted(planned.plan, drop);
    await pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform: to });
    const last = newId('snap');
    const operation: MoveOperation = { kind: 'move', to, snapshot: last };
    await sandboxes.update(id, { operation });
    const freezing = planned.source.backend.ability('freeze');
    const pins = [registry.pin(last)];
    const ids: SnapshotId[] = [];
    const isActive = row.state === 'active';
    using coming = quota.begin(row.project, 'moves', ['snapshotBytes']);
    let moved: SandboxRow | undefined;
    try {
      await faultPoint('control.move.recorded');
      if (isActive) await drainLogs(id).catch(onError);
      if (isActive) await freezing?.freeze(id);
      const request = { id: last, cause: 'move', memory: false, quiet: true, becomesBase: false } as const;
      await registry.take(row, request, principal);
      const movable = drop.includes('snapshots')
        ? []
        : await movableSnapshots(records, row, planned.plan.from);
      // The list has the newest first.
      const others = movable.map((each) => each.id).filter((each) => each !== last);
      ids.push(...others.reverse(), last);
      pins.push(...others.map((each) => registry.pin(each)));
      const copied = await copySnapshots(row, planned, ids, coming);
      await faultPoint('control.move.copied');
      const { platform: _platform, ...there } = planned.spec;
      await planned.target.snapshots.clone(id, there, last, scopeOf(row));
      await faultPoint('control.move.made');
      moved = await recordMoved(row, planned, last, copied, principal);
    } catch (error) {
      await removeFrom(planned.target, id, ids);
      if (isActive) await freezing?.thaw(id).catch(onError);
      await sandboxes.update(id, { operation: null }).catch(onError);
      for (const pin of pins.splice(0)) pin[Symbol.dispose]();
      const taken = await snapshots.get(last);
      if (taken) await registry.dropUnneeded([taken]);
      throw error;
    } finally {
      for (const pin of pins) pin[Symbol.dispose]();
    }
    const platforms = backend.ability('platforms')!;
    for (const each of [id, ...ids]) platforms.place(each, to);
    await faultPoint('control.move.done');
    await removeFrom(planned.source, id, ids);
    return { row: isActive ? await starter.start(moved) : moved, planned };
  }

  return {
    async move(principal, ref, request) {
      const { platform, drop, dryRun } = MoveSandboxSchema.parse(request);
      const found = await lookup.find(principal, ref);
      const { id } = found;
      if (dryRun) {
        const { plan } = await planMove(found, platform, drop);
        return { sandbox: await lookup.show(found), plan, moved: false };
      }
      // What is refused is refused before anything waits.
      requireAccepted((await planMove(found, platform, drop)).plan, drop);
      const { row, planned } = await operations.claim(id, 'move', () =>
        activity.withGateClosed(id, async () => {
          await activity.waitUntilNone(id, ['call'], CALLS_MS);
          return operations.enqueue(id, () => moveNow(id, platform, drop, principal), 'move');
        }),
      );
      return { sandbox: await lookup.show(row), plan: planned.plan, moved: true };
    },

    async giveUp(row, { to, snapshot }) {
      const target = await backend.ability('platforms')?.get(to);
      await target?.remove(row.id);
      const own = await snapshots.list({ sandbox: row.id, project: row.project });
      // What has stayed there at an earlier move is no copy.
      const copies = own.filter((each) => each.spec.platform !== to && each.id !== snapshot);
      for (const id of [snapshot, ...copies.map((each) => each.id)])
        await target?.ability('snapshots')?.removeSnapshot(id).catch(onError);
      if (row.state === 'active') await backend.ability('freeze')?.thaw(row.id).catch(onError);
      return sandboxes.update(row.id, { operation: null });
    },
  };
}

function requireAccepted({ losses, to }: PlannedMove['plan'], drop: readonly MoveLoss[]): void {
  const refused = losses.filter(({ what }) => !drop.includes(what));
  if (refused.length === 0) return;
  const words = refused.map(({ what }) => what);
  throw new CayError(
    'failed_precondition',
    `Cannot move to platform "${to}" without losing ${words.join(', ')}: ${refused.map(({ why }) => why).join('; ')}`,
    { details: { losses: refused }, hint: `allow it with "drop": ${words.join(', ')}` },
  );
}
