/**
 * Builds the control plane of `control.ts`, in three steps: the object graph, without timers or changes; the
 * recovery of what an earlier server left; then the timers.
 *
 * Every part is built from parts above it. `Core` has the parts that need no other verb.
 */
import { canRoute } from '../backends/backend.ts';
import { openArchiving } from './pausing/archive.ts';
import { PRESSURE_DEFAULTS } from './capacity/pressure.ts';
import { watchHealth } from './capacity/health.ts';
import { openRelief } from './capacity/relief.ts';
import { commandKeys } from './commands/command-keys.ts';
import type { ControlOptions } from './control-options.ts';
import type { Control } from './control.ts';
import { openCore, type Core } from './core.ts';
import { openIdleDetector } from './pausing/idle-detector.ts';
import { openIdling } from './pausing/idle-policy.ts';
import { openPauseLevels } from './pausing/pause-levels.ts';
import { openPausing } from './pausing/pausing.ts';
import { openWaker } from './pausing/wake.ts';
import { platformOf } from './placement/survey-platforms.ts';
import { followBackend } from './recovery/follow-backend.ts';
import { openReconciling } from './recovery/reconcile.ts';
import { finishForks, undoForks } from './recovery/recover-forks.ts';
import { recoverSandboxes } from './recovery/recover-sandboxes.ts';
import { recoverSnapshots } from './recovery/recover-snapshots.ts';
import { openSettler } from './recovery/settle-sandbox.ts';
import { sweepVerbs } from './recovery/sweep.ts';
import { createVerb } from './sandboxes/create-sandbox.ts';
import { openDestroyer, REMOVE_RETRY_MS } from './sandboxes/destroy-sandbox.ts';
import { expireSandbox } from './sandboxes/expire-sandbox.ts';
import { openExpiry } from './sandboxes/expiry.ts';
import { openGuestAccess } from './sandboxes/guest-access.ts';
import { openMaker } from './sandboxes/make-sandbox.ts';
import { openPlanning } from './sandboxes/plan-sandbox.ts';
import { portVerbs } from './sandboxes/port-verbs.ts';
import { openStateRecorder } from './sandboxes/record-state.ts';
import { openResizing } from './sandboxes/resize-sandbox.ts';
import { sandboxVerbs } from './sandboxes/sandbox-verbs.ts';
import { openStarter } from './sandboxes/start-sandbox.ts';
import { openStopper } from './sandboxes/stop-sandbox.ts';
import { validateVerb } from './sandboxes/validate-create.ts';
import { compareVerb } from './snapshots/compare.ts';
import { openForkChildren } from './snapshots/fork-children.ts';
import { forkVerb } from './snapshots/fork.ts';
import { importVerb } from './snapshots/import-snapshot.ts';
import { openRetaining } from './snapshots/retention.ts';
import { openRollingBack } from './snapshots/rollback.ts';
import { openSnapshotRegistry } from './snapshots/snapshot-registry.ts';
import { snapshotVerbs } from './snapshots/snapshot-verbs.ts';
import { templateVerbs } from './templates/template-verbs.ts';

export type { Control } from './control.ts';
export type { ControlOptions } from './control-options.ts';

export async function openControl(options: ControlOptions): Promise<Control> {
  const closing = new AbortController();
  const core = await openCore(options, closing.signal);
  const parts = buildParts(core, options);
  placeRecorded(core);
  lowerTimeouts(core);
  // Watched before the recovery lists sandboxes, so that no change falls in between.
  const changes = core.backend.watch({ signal: closing.signal });
  await recover(parts);
  followBackend(changes, parts).catch(core.onError);
  start(parts, options);
  return { ...verbs(parts, options), close: () => close(parts, closing, options) };
}

type Parts = ReturnType<typeof buildParts>;

function buildParts(core: Core, options: ControlOptions) {
  const { clock, onError, records } = core;
  const { sandboxes } = records;
  const expiry = openExpiry({
    next: () => sandboxes.nextExpiry(),
    due: () => sandboxes.expired(clock.now()),
    shorten: () => sandboxes.shorten(clock.now(), REMOVE_RETRY_MS),
    now: clock.now,
    onError,
  });
  const state = openStateRecorder({ ...core, expiry });
  const starter = openStarter({ ...core, state });
  const maker = openMaker({ ...core, starter, state });
  const stopper = openStopper({ ...core, state });
  const registry = openSnapshotRegistry({ ...core, maker });
  const destroyer = openDestroyer({ ...core, expiry, snapshots: registry });

  const archiving = openArchiving({ ...core, registry, starter });
  const waker = openWaker({ ...core, archiving, starter, state });
  const levels = openPauseLevels({ ...core, archiving, state, waker });
  const pausing = openPausing({ ...core, levels, waker });
  const idleDetector = openIdleDetector(core);
  const idling = openIdling({ ...core, destroyer, idleDetector, pausing, checkEveryMs: options.idleLookMs });
  const relief = openRelief({ ...core, idleDetector, pausing, unusedMs: options.reclaimUnusedMs });

  const settler = openSettler({ ...core, starter, state });
  const reconciling = openReconciling({ ...core, settler, everyMs: options.reconcileMs });
  const retention = openRetaining({ ...core, registry });
  const resizing = openResizing({ ...core, settler });
  const rollingBack = openRollingBack({ ...core, registry, retention, settler, state, waker });
  const forkChildren = openForkChildren({ ...core, destroyer, maker, registry });
  const planning = openPlanning({ ...core, registry });
  const guestAccess = openGuestAccess({ ...core, maker, waker });
  const health = watchHealth({
    ...core,
    errors: core.recentErrors,
    records: () => void records.database.get('SELECT count(*) FROM projects'),
    counts: sandboxes.counts,
    now: clock.now,
  });
  return {
    ...core,
    destroyer,
    expiry,
    forkChildren,
    guestAccess,
    health,
    idling,
    maker,
    pausing,
    planning,
    reconciling,
    registry,
    relief,
    resizing,
    retention,
    rollingBack,
    settler,
    starter,
    state,
    stopper,
    waker,
  };
}

/** With several platforms: passes to the backend where each recorded sandbox and snapshot is. */
function placeRecorded({ backend, records: { sandboxes, snapshots } }: Core): void {
  if (!canRoute(backend)) return;
  for (const row of [...sandboxes.list({}), ...snapshots.all()]) {
    const platform = platformOf(row, backend);
    if (platform !== undefined) backend.place(row.id, platform);
  }
}

/**
 * An earlier server may have allowed longer timeouts. They are lowered at once, because this server enforces
 * them; limits of processes are lowered at the next start.
 */
function lowerTimeouts({ clock, policy, recordEvent, records: { database, sandboxes } }: Core): void {
  const { timeoutMs: longest } = policy.maxima;
  if (longest === null) return;
  database.transaction(() => {
    for (const row of sandboxes.lowerTimeouts(longest, clock.now()))
      recordEvent('sandbox.updated', row, undefined, { fields: ['timeoutMs'], cause: 'policy' });
  });
}

async function recover(parts: Parts): Promise<void> {
  await undoForks(parts);
  await recoverSandboxes(parts);
  await recoverSnapshots(parts);
  finishForks(parts);
}

function start(
  parts: Parts,
  { pressure: { reclaim = PRESSURE_DEFAULTS.reclaim } = {} }: ControlOptions,
): void {
  parts.expiry.start(expireSandbox(parts));
  parts.retention.start();
  parts.idling.start();
  parts.reconciling.start();
  if (reclaim) parts.relief.start();
}

function verbs(parts: Parts, { previews }: ControlOptions): Omit<Control, 'close'> {
  const { backend, clock, events, health, pausing, policy, quota, records } = parts;
  const ofSandboxes = sandboxVerbs(parts);
  return {
    backend,
    policy,
    events,
    quota,
    idempotency: records.idempotency,
    commandKeys: commandKeys(records.database, { now: clock.now, ageing: clock.ageing, quota }),
    ...ofSandboxes,
    ...portVerbs({ ...parts, previews }),
    ...createVerb({ ...parts, start: ofSandboxes.start }),
    ...validateVerb(parts),
    ...snapshotVerbs(parts),
    ...importVerb(parts),
    ...compareVerb(parts),
    ...forkVerb(parts),
    rollback: parts.rollingBack.rollback,
    pause: pausing.pause,
    resume: pausing.resume,
    lease: pausing.lease,
    ...templateVerbs(parts),
    health,
    ...sweepVerbs(parts),
    counts: records.sandboxes.counts,
  };
}

async function close(parts: Parts, closing: AbortController, { archives }: ControlOptions): Promise<void> {
  closing.abort();
  parts.idling.close();
  parts.pressure.close();
  parts.health.close();
  parts.expiry.stop();
  await parts.relief.close();
  await parts.reconciling.close();
  await parts.maker.settled();
  await parts.retention.close();
  parts.activity.close();
  await parts.backend.close();
  await archives?.close();
  parts.events.close();
  parts.records.database.close();
}
