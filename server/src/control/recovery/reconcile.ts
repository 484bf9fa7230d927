/**
 * Compares records with what the backend has, every minute, as is done when the server opens: what happened
 * behind the server's back, and what could not be recorded when it happened, is noted soon.
 *
 * A difference is only a reason to look: it is looked at again in line with the other changes of its sandbox,
 * and decided by what is found then.
 */
import type { SnapshotId } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { Context } from '../context.ts';
import { platformOf, survey } from '../placement/placement.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { loseSnapshot } from './recover-snapshots.ts';
import { removeOrphanSandbox } from './orphan-sandboxes.ts';

export interface Reconciling {
  /** Looks now. */
  look(): Promise<void>;
  close(): Promise<void>;
}

const LOOK_EVERY_MS = 60_000;

export function openReconciling(
  context: Context,
  { everyMs = LOOK_EVERY_MS }: { everyMs?: number } = {},
): Reconciling {
  const { backend, operations, lifecycle, onError, sandboxes, snapshots } = context;
  let missing = new Set<SnapshotId>();
  let looking: Promise<void> | undefined;
  let closed = false;

  async function lookAtSandboxes(): Promise<void> {
    const { found: all, unsure } = await survey(backend, (platform) => platform.list());
    const found = new Map(all.map((each) => [each.it.id, each]));
    for (const row of sandboxes.list({})) {
      const there = found.get(row.id);
      const observed: Observation = there?.it ?? { id: row.id, phase: 'absent', incarnation: 0 };
      found.delete(row.id);
      if (closed || (!there && unsure(platformOf(row, backend)))) continue;
      if (differs(row, observed)) settle(row);
    }
    for (const [id, { platform }] of found) {
      if (closed || sandboxes.get(id)) continue;
      removeOrphanSandbox(context, { id, platform }).catch(onError);
    }
  }

  function settle({ id }: SandboxRow): void {
    operations
      .run(id, async () => {
        const row = closed ? undefined : sandboxes.get(id);
        if (!row || !canDiffer(row)) return;
        const observed = await backend.observe(id);
        if (differs(row, observed)) lifecycle.settle(row, observed);
      })
      .catch(onError);
  }

  async function lookAtSnapshots(): Promise<void> {
    if (!backend.ability('snapshots')) return;
    const { found: all, unsure } = await survey(
      backend,
      async (platform) => (await platform.ability('snapshots')?.snapshots()) ?? [],
    );
    const found = new Map(all.map(({ it, platform }) => [it.id, platform]));
    const gone = snapshots
      .list({})
      .filter((row) => row.here && !found.has(row.id) && !unsure(platformOf(row, backend)));
    for (const row of gone) {
      // Twice in a row: one that was being fetched when it was looked for is there by then.
      if (missing.has(row.id) && !closed) loseSnapshot(context, row);
    }
    missing = new Set(gone.map(({ id }) => id));
    for (const [id, platform] of found) {
      if (!closed && !snapshots.get(id))
        await platform.ability('snapshots')?.removeSnapshot(id).catch(onError);
    }
  }

  async function lookAtAll(): Promise<void> {
    await lookAtSandboxes();
    await lookAtSnapshots();
  }

  const reconciling: Reconciling = {
    look: () => (looking ??= lookAtAll().finally(() => (looking = undefined))),
    async close() {
      closed = true;
      clearInterval(timer);
      await looking?.catch(() => {});
    },
  };
  const timer = setInterval(() => void reconciling.look().catch(onError), everyMs).unref();
  return reconciling;
}

/**
 * What is being made or removed has its own way, and so has what is in the archive store or being rolled
 * back.
 */
function canDiffer({ state, pausedAs, operation }: SandboxRow): boolean {
  return state !== 'creating' && state !== 'destroying' && pausedAs !== 'archived' && !operation;
}

export function differs(row: SandboxRow, { phase, frozen = false, suspended = false }: Observation): boolean {
  if (!canDiffer(row)) return false;
  const running = phase === 'starting' || (phase === 'ready' && !frozen);
  if (row.state === 'active') return !running;
  if (row.pausedAs === 'frozen') return !(phase === 'ready' && frozen);
  if (row.pausedAs === 'suspended') return !(phase === 'stopped' && suspended);
  if (row.pausedAs === 'hibernated') return phase !== 'hibernated';
  return phase === 'starting' || phase === 'ready' || phase === 'hibernated';
}
