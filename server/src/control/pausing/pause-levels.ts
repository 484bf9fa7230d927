/**
 * Pauses a sandbox at one level. The backend reports whether a sandbox is frozen, suspended or hibernated, so
 * no intent is recorded before; `archive.ts` records its own.
 *
 * Call these from the sandbox's queue, with its gate closed.
 */
import { CayError, isCayError, type Pause } from '@cay/sdk/protocol';
import { scopeOf } from '../sandboxes/scope-of.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { OnRecord, StateRecorder } from '../sandboxes/record-state.ts';
import { imageEstimate } from '../snapshots/image-estimate.ts';
import type { Archiving } from './archive.ts';
import type { Waker } from './wake.ts';

export interface LevelOptions {
  /** The timeout goes on while it is paused. */
  keepsTimeout?: boolean | undefined;
  /** The pause makes room on the machine, so the project's quota does not apply. */
  ignoresQuota?: boolean;
  /** A refusal by the quota is final: no other level is tried. */
  strictQuota?: boolean;
  onRecord?: OnRecord;
}

export interface PauseLevels {
  /**
   * Pauses at the first of these levels that is possible. Resolves the unchanged row if none is. Rejects
   * `resource_exhausted` if the quota refused one and no other is possible.
   */
  firstPossible(row: SandboxRow, levels: readonly Pause[], options?: LevelOptions): Promise<SandboxRow>;
}

type EnterLevel = (row: SandboxRow, options: LevelOptions) => Promise<SandboxRow>;

export function openPauseLevels(
  core: Pick<Core, 'archives' | 'backend' | 'capabilities' | 'drainLogs' | 'onError' | 'quota'> & {
    archiving: Archiving;
    state: StateRecorder;
    waker: Pick<Waker, 'ensureAwake'>;
  },
): PauseLevels {
  const { archives, archiving, backend, drainLogs, onError, quota, state, waker } = core;

  /** Records the pause. One that cannot be recorded is undone, because no call would wake the sandbox. */
  async function record(
    row: SandboxRow,
    changes: Pick<SandboxRow, 'pausedAs'> & { imageBytes?: number },
    { keepsTimeout, onRecord }: LevelOptions,
    undo: () => Promise<unknown>,
  ): Promise<SandboxRow> {
    try {
      await faultPoint('control.pause.done');
      const time = keepsTimeout ? {} : { expiresAtMs: null };
      return await state.change(row, { ...changes, ...time, state: 'paused' }, onRecord);
    } catch (error) {
      if (row.state === 'active') await undo().catch(onError);
      throw error;
    }
  }

  const runAgain = (row: SandboxRow) => backend.ensure(row.id, row.spec, scopeOf(row));

  const freeze: EnterLevel = async (row, options) => {
    const freezing = backend.ability('freeze');
    if (!freezing) throw unsupportedLevel(row, 'frozen');
    await freezing.freeze(row.id);
    return record(row, { pausedAs: 'frozen' }, options, () => freezing.thaw(row.id));
  };

  const suspend: EnterLevel = async (row, options) => {
    const suspending = backend.ability('suspend');
    if (!suspending) throw unsupportedLevel(row, 'suspended');
    if (row.state === 'active') await drainLogs(row.id).catch(onError);
    await suspending.suspend(row.id);
    return record(row, { pausedAs: 'suspended' }, options, () => runAgain(row));
  };

  const hibernate: EnterLevel = async (row, options) => {
    const hibernating = backend.ability('memorySnapshots');
    if (!hibernating) throw unsupportedLevel(row, 'hibernated');
    using reserved = quota.begin(row.project, 'underWay', options.ignoresQuota ? [] : ['snapshotBytes']);
    const estimate = await imageEstimate(core, row, true);
    await reserved.add(estimate);
    // With the output recorded, reading it does not wake the sandbox.
    if (row.state === 'active') await drainLogs(row.id).catch(onError);
    const { imageBytes = estimate } = await hibernating.hibernate(row.id);
    return record(row, { pausedAs: 'hibernated', imageBytes }, options, () => runAgain(row));
  };

  /** Files that change while they are copied would be lost, so processes are paused first. */
  const archive: EnterLevel = async (row, { onRecord }) => {
    if (!archives.store) throw unsupportedLevel(row, 'archived');
    if (row.state === 'active') await drainLogs(row.id).catch(onError);
    const still = await pausedForArchive(row);
    try {
      return await archiving.archive(still, { onRecord });
    } catch (error) {
      if (row.state === 'active' && still.state === 'paused') await waker.ensureAwake(still).catch(onError);
      throw error;
    }
  };

  /** With memory where that can be kept. */
  async function pausedForArchive(row: SandboxRow): Promise<SandboxRow> {
    if (row.pausedAs === 'hibernated' || row.pausedAs === 'suspended') return row;
    const candidates: Pause[] = row.pausedAs === null ? ['hibernated', 'frozen'] : ['hibernated'];
    return levels.firstPossible(row, candidates, { strictQuota: true });
  }

  const enter: Record<Pause, EnterLevel> = {
    frozen: freeze,
    suspended: suspend,
    hibernated: hibernate,
    archived: archive,
  };

  const levels: PauseLevels = {
    async firstPossible(row, candidates, options = {}) {
      let refusedByQuota: unknown;
      for (const level of candidates) {
        try {
          return await enter[level](row, options);
        } catch (error) {
          const isQuota = isCayError(error, 'resource_exhausted') && error.details['quota'] !== undefined;
          if ((!isQuota || options.strictQuota) && !isCayError(error, 'unsupported')) throw error;
          if (isQuota) refusedByQuota ??= error;
        }
      }
      if (refusedByQuota !== undefined) throw refusedByQuota;
      return row;
    },
  };
  return levels;
}

export function unsupportedLevel(row: SandboxRow, level: Pause): CayError {
  return new CayError('unsupported', `Sandbox "${row.id}" cannot be ${level} here`, {
    details: { pause: level, backend: row.backend, ...(row.runtime !== null && { runtime: row.runtime }) },
    hint: level === 'archived' ? 'the server has no archive store' : 'stop it instead: its files are kept',
  });
}
