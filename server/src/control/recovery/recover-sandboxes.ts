/**
 * Brings the records of sandboxes and the backend together when the server opens: finishes what was begun,
 * records what happened meanwhile, and removes sandboxes that no record knows.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import { isAway, type Observation } from '../../backends/backend.ts';
import { retry } from '../../lib/retry.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { Moving } from '../placement/move-sandbox.ts';
import { platformOf, split, survey } from '../placement/placement.ts';
import { isLeasedElsewhere } from '../sandboxes/operations.ts';
import type { SandboxDestroyer } from '../sandboxes/destroy-sandbox.ts';
import type { SandboxMaker } from '../sandboxes/make-sandbox.ts';
import type { Resizing } from '../sandboxes/resize-sandbox.ts';
import type { RollingBack } from '../snapshots/rollback.ts';
import { differs } from './reconcile.ts';
import type { Settler } from './settle-sandbox.ts';

/** A platform that does not answer is asked again after this, then after twice as long. */
const AWAY_RETRY_MS = 2_000;
const AWAY_RETRY_MAX_MS = 30_000;

export async function recoverSandboxes({
  backend,
  closing,
  onError,
  operations,
  records: { sandboxes },
  destroyer,
  maker,
  moving,
  resizing,
  rollingBack,
  settler,
}: Pick<Core, 'backend' | 'closing' | 'onError' | 'operations' | 'records'> & {
  destroyer: SandboxDestroyer;
  maker: SandboxMaker;
  moving: Moving;
  resizing: Resizing;
  rollingBack: RollingBack;
  settler: Settler;
}): Promise<void> {
  /** In the sandbox's queue. */
  async function recoverOne(row: SandboxRow, observed: Observation): Promise<void> {
    // All of it is in the archive store; what the backend has is left over.
    if (row.pausedAs === 'archived') await backend.remove(row.id);
    else if (row.operation?.kind === 'resize') await resizing.finish(row, row.operation, observed);
    else if (row.operation?.kind === 'move')
      await settler.settle(await moving.giveUp(row, row.operation), observed);
    else if (row.operation) await rollingBack.finish(row, row.operation, observed);
    else await settler.settle(row, observed);
  }

  /** As it is now: another server may have made or changed it since it was listed. */
  const recover = (id: SandboxId): Promise<void> =>
    operations.enqueue(id, async () => {
      const row = closing.aborted ? undefined : await sandboxes.get(id);
      if (row && row.state !== 'creating' && row.state !== 'destroying')
        await recoverOne(row, await backend.observe(id));
    });

  /** The platform does not answer yet. Until it does, the sandbox stays as it is recorded. */
  function recoverLater(id: SandboxId): Promise<void> {
    return retry(() => recover(id), {
      isTransient: isAway,
      onError: (error) => void (isAway(error) || onError(error)),
      firstDelayMs: AWAY_RETRY_MS,
      delayMs: 2 * AWAY_RETRY_MS,
      maxDelayMs: AWAY_RETRY_MAX_MS,
    });
  }

  const { found, unsure } = await survey(backend, (platform) => platform.list());
  const rows = await sandboxes.list({});
  const { placed, misplaced } = split(backend, found, rows);
  const unknown = new Map(placed.map((each) => [each.it.id, each]));
  /** An operation of another server is finished by that server. */
  const report = (error: unknown) => void (isLeasedElsewhere(error) || onError(error));

  for (const row of rows) {
    const there = unknown.get(row.id);
    const observed: Observation = there?.it ?? { id: row.id, phase: 'absent', incarnation: 0 };
    unknown.delete(row.id);
    if (row.state === 'creating') maker.make(row, undefined).catch(report);
    else if (row.state === 'destroying')
      operations.enqueue(row.id, () => destroyer.destroy(row, undefined, 'recovery')).catch(report);
    else if (!there && unsure(platformOf(row, backend))) await recoverLater(row.id);
    else if (row.pausedAs === 'archived' || row.operation || differs(row, observed))
      await recover(row.id).catch((error: unknown) => (isAway(error) ? recoverLater(row.id) : report(error)));
    else await settler.settle(row, observed);
  }
  // It was moved, and what was left behind was not removed. One that is being moved is on both platforms.
  for (const { it, platform } of misplaced)
    if ((await sandboxes.get(it.id))?.operation?.kind !== 'move') await platform.remove(it.id).catch(onError);
  // A sandbox without a record was never acknowledged to a caller.
  for (const [id, { platform }] of unknown) await platform.remove(id).catch(onError);
}
