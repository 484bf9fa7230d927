/**
 * Compares records with what the backend has, every minute, as recovery does when the server opens. So
 * changes that the server did not see, or could not record, are recorded soon.
 *
 * A difference is only a reason to look again, in the queue of the sandbox: what is found there decides.
 */
import type { SandboxId, SnapshotId } from '@cay/sdk/protocol';
import type { Backend, Observation } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import { platformOf, isOn, split, survey } from '../placement/placement.ts';
import { isLeasedElsewhere } from '../sandboxes/operations.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { loseSnapshot, removeLeftSnapshots } from './recover-snapshots.ts';
import { removeOrphanSandbox } from './orphan-sandboxes.ts';
import type { Settler } from './settle-sandbox.ts';

export interface Reconciling {
  start(): void;
  close(): Promise<void>;
}

const COMPARE_EVERY_MS = 60_000;

export function openReconciling(
  core: Pick<Core, 'backend' | 'closing' | 'onError' | 'operations' | 'recordEvent' | 'records'> & {
    settler: Settler;
    everyMs?: number | undefined;
  },
): Reconciling {
  const { backend, closing, onError, operations, settler, everyMs = COMPARE_EVERY_MS } = core;
  const { sandboxes, snapshots } = core.records;
  let missing = new Set<SnapshotId>();
  let comparing: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function compareSandboxes(): Promise<void> {
    const { found: all, unsure } = await survey(backend, (platform) => platform.list());
    const rows = await sandboxes.list({});
    const { placed, misplaced } = split(backend, all, rows);
    const found = new Map(placed.map((each) => [each.it.id, each]));
    for (const { it, platform } of misplaced) removeLeft(it.id, platform);
    for (const row of rows) {
      const there = found.get(row.id);
      const observed: Observation = there?.it ?? { id: row.id, phase: 'absent', incarnation: 0 };
      found.delete(row.id);
      if (closing.aborted || (!there && unsure(platformOf(row, backend)))) continue;
      if (differs(row, observed)) settle(row);
    }
    for (const [id, { platform }] of found) {
      if (closing.aborted || (await sandboxes.get(id))) continue;
      removeOrphanSandbox(core, { id, platform }).catch(onError);
    }
  }

  /** A sandbox that was moved, and is still on the platform where it was. */
  function removeLeft(id: SandboxId, platform: Backend): void {
    operations
      .enqueue(id, async () => {
        const row = closing.aborted ? undefined : await sandboxes.get(id);
        if (!row || row.operation?.kind === 'move' || isOn(backend, row, platform)) return;
        await platform.remove(id);
      })
      .catch(onError);
  }

  function settle({ id }: SandboxRow): void {
    operations
      .enqueue(id, async () => {
        const row = closing.aborted ? undefined : await sandboxes.get(id);
        if (!row || !canDiffer(row)) return;
        const observed = await backend.observe(id);
        if (differs(row, observed)) await settler.settle(row, observed);
      })
      .catch((error: unknown) => {
        if (!isLeasedElsewhere(error)) onError(error);
      });
  }

  async function compareSnapshots(): Promise<void> {
    if (!backend.ability('snapshots')) return;
    const { found: all, unsure } = await survey(
      backend,
      async (platform) => (await platform.ability('snapshots')?.snapshots()) ?? [],
    );
    const kept = await snapshots.list({});
    const { placed, misplaced } = split(backend, all, await snapshots.all());
    const found = new Map(placed.map(({ it, platform }) => [it.id, platform]));
    const gone = kept.filter((row) => row.here && !found.has(row.id) && !unsure(platformOf(row, backend)));
    for (const row of gone) {
      // Missing twice in a row: a snapshot that was being fetched at the first comparison is there by now.
      if (missing.has(row.id) && !closing.aborted) await loseSnapshot(core, row);
    }
    missing = new Set(gone.map(({ id }) => id));
    for (const [id, platform] of found) {
      if (!closing.aborted && !(await snapshots.get(id)))
        await platform.ability('snapshots')?.removeSnapshot(id).catch(onError);
    }
    await removeLeftSnapshots(core, misplaced);
  }

  async function compareAll(): Promise<void> {
    await compareSandboxes();
    await compareSnapshots();
  }

  function tick(): void {
    comparing ??= compareAll()
      .catch(onError)
      .finally(() => (comparing = undefined));
  }

  return {
    start() {
      timer = setInterval(tick, everyMs).unref();
    },
    async close() {
      clearInterval(timer);
      await comparing;
    },
  };
}

/**
 * A sandbox that is being made, removed or rolled back has an operation that records the result, and an
 * archived one has nothing in the backend.
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
