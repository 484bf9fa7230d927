/**
 * The control plane: who may, which sandbox, until when.
 *
 * It owns ids, names, records, quotas and expiry, and has a backend make real what is recorded.
 * Every change goes in line with the others of its sandbox: the intent is recorded (`creating`,
 * `destroying`), then the operation is done, then the result is recorded. Each operation can be repeated, so
 * a server that was killed between any two lines finishes what it finds when it opens again.
 *
 * A principal sees its own project only; what belongs to others does not exist for it.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Store } from '../storage/store.ts';
import type { Backend } from '../backends/backend.ts';
import { openClock } from '../lib/clock.ts';
import { requireMayHave } from '../policy/allow-runtime.ts';
import { loweredLimits } from '../policy/bound-limits.ts';
import { DEFAULT_POLICY, type Policy } from '../policy/policy.ts';
import { openActivity } from './sandboxes/activity.ts';
import { archiveSeal } from './snapshots/archive-seal.ts';
import { openArchiving } from './pausing/archive.ts';
import { commandLimit } from './commands/command-limit.ts';
import { commandKeys } from './commands/command-keys.ts';
import { compareVerb } from './snapshots/compare.ts';
import type { Context } from './context.ts';
import type { Control } from './control.ts';
import { createVerb } from './sandboxes/create-sandbox.ts';
import { openOperations } from './sandboxes/operations.ts';
import { openForking } from './snapshots/fork.ts';
import { watchHealth, type HealthWatch } from './capacity/health.ts';
import { idempotency } from './tenants/idempotency.ts';
import { openIdling } from './pausing/idle-policy.ts';
import { openSnapshotRegistry } from './snapshots/snapshot-registry.ts';
import { openLifecycle } from './sandboxes/lifecycle.ts';
import { openPausing } from './pausing/pausing.ts';
import { openPlanning } from './sandboxes/plan-sandbox.ts';
import { PRESSURE_DEFAULTS, openPressure, type PressureSettings } from './capacity/pressure.ts';
import { openRelief, type Relief } from './capacity/relief.ts';
import type { PreviewTokens } from './tenants/preview-tokens.ts';
import { quotaLedger } from './tenants/quota-ledger.ts';
import { openReconciling } from './recovery/reconcile.ts';
import { recoverSnapshots } from './recovery/recover-snapshots.ts';
import type { Database } from '../records/database.ts';
import type { EventLog } from './events/event-log.ts';
import { forkRecords } from '../records/forks.ts';
import type { ProjectRecords } from '../records/projects.ts';
import type { SandboxRecords } from '../records/sandboxes.ts';
import { installationSecret } from '../records/secrets.ts';
import { snapshotRecords } from '../records/snapshots.ts';
import { templateRecords } from '../records/templates.ts';
import { platformCapabilities, rememberPlacements } from './placement/placement.ts';
import { openResizing } from './sandboxes/resize-sandbox.ts';
import { openRetaining } from './snapshots/retention.ts';
import { openRollingBack } from './snapshots/rollback.ts';
import { sandboxVerbs } from './sandboxes/sandbox-verbs.ts';
import { showSandbox } from './sandboxes/show-sandbox.ts';
import { snapshotVerbs } from './snapshots/snapshot-verbs.ts';
import { sweepVerbs } from './recovery/sweep.ts';
import { templateVerbs } from './templates/template-verbs.ts';
import { openIdleDetector } from './pausing/idle-detector.ts';
import { validateVerb } from './sandboxes/validate-create.ts';
import { openGuestAccess } from './sandboxes/guest-access.ts';

export type { Control } from './control.ts';

export interface ControlOptions {
  backend: Backend;
  database: Database;
  sandboxes: SandboxRecords;
  projects: ProjectRecords;
  events: EventLog;
  previews: PreviewTokens;
  /** Where a sandbox's port is reached, as the API shows it. */
  previewUrl(id: SandboxId, port: number): string;
  /** Where archived sandboxes go. Without it none is archived. Closed with the control plane. */
  archives?: Store;
  /** How often sandboxes with an idle policy are looked at. Default 2,000. */
  idleLookMs?: number;
  /** What may be asked for. */
  policy?: Policy;
  /** Where the server writes records, uploads and logs; the room there is held back as well. */
  dataDir?: string;
  /** How full the machine may become, and whether room is made. */
  pressure?: Partial<PressureSettings>;
  /** How often records are compared with what the backend has. Default 60,000. */
  reconcileMs?: number;
  /** How long a sandbox must not have been used before it is put to rest to make room. Default 30,000. */
  reclaimUnusedMs?: number;
  /** Called before the processes of a sandbox end, to record what its commands have written. */
  drain?(id: SandboxId): Promise<void>;
  now?(): number;
  /** Milliseconds since whenever, without jumps. Default: the process's own. */
  monotonic?(): number;
  onError?(error: unknown): void;
}

export async function openControl(options: ControlOptions): Promise<Control> {
  const { backend, database, sandboxes, projects, events, previews, policy = DEFAULT_POLICY } = options;
  const clock = openClock({ now: options.now, monotonic: options.monotonic });
  const { now } = clock;
  const drain = async (id: SandboxId) => options.drain?.(id);
  const onError = (error: unknown) => {
    health?.noteError(error);
    options.onError?.(error);
  };
  let health: HealthWatch | undefined;
  let relief: Relief | undefined;
  let relieving: Promise<unknown> | undefined;
  const closing = new AbortController();
  const operations = openOperations();
  const activity = openActivity({ save: (used) => sandboxes.used(used), clock, onError });
  const commands = commandLimit(policy.maxima.commands);

  const quota = quotaLedger({ sandboxes, projects, write: (bytes) => pressure.write(bytes) });
  const keyed = idempotency(database, { now, ageing: clock.ageing, quota });

  const note: Context['note'] = (type, row, principal, data = {}) =>
    events.append({ type, project: row.project, sandbox: row.id, key: principal?.key ?? null, data });

  const lifecycle = openLifecycle({
    backend,
    database,
    operations,
    sandboxes,
    idempotency: keyed,
    note,
    drain,
    began: activity.mark,
    now,
    onError,
    pause: (row) => pausing.byTimeout(row),
    halted: (row) => pausing.halted(row),
    async limitsFor({ spec }) {
      const { abilities } = await context.capabilitiesOf(spec.platform);
      return loweredLimits(policy, spec.limits, abilities);
    },
    removed: async (row) => {
      activity.forget(row.id);
      commands.forget(row.id);
      await registry.dropLeft(row);
    },
  });

  const snapshots = snapshotRecords(database);
  quota.counts('snapshots', 'snapshots', (project) => snapshots.usage(project).count);
  quota.counts('snapshotBytes', 'snapshots', (project) => snapshots.usage(project).bytes);
  quota.counts('snapshotBytes', 'hibernated', (project) => sandboxes.imageBytes(project));
  const { reclaim = PRESSURE_DEFAULTS.reclaim } = options.pressure ?? {};
  const pressure = await openPressure({
    backend,
    dataDir: options.dataDir,
    settings: options.pressure,
    promised: quota.promised,
    onPressure(level, resource) {
      if (reclaim && relief && !closing.signal.aborted)
        relieving = relief.relieve(level, resource).catch(onError);
    },
    onChange(resource, { level, share, free, total }, before) {
      const data = { resource, level, before, share: Math.round(share * 1000) / 1000, free, total };
      if (!closing.signal.aborted) events.append({ type: 'pressure.changed', data });
    },
    now,
    onError,
  });
  const capabilities = await backend.capabilities();
  const context: Context = {
    backend,
    capabilities,
    capabilitiesOf: platformCapabilities(backend, capabilities),
    policy,
    commands,
    database,
    sandboxes,
    snapshots,
    templates: templateRecords(database),
    forks: forkRecords(database),
    projects,
    events,
    idempotency: keyed,
    operations,
    activity,
    quota,
    pressure,
    lifecycle,
    seal: archiveSeal(installationSecret(database, 'archives')),
    archives: options.archives,
    drain,
    clock,
    now,
    onError,
    note,
    show: (row) => {
      const used = activity.usedAtMs(row.id);
      return showSandbox(
        { ...row, usedAtMs: used === undefined ? row.usedAtMs : Math.max(used, row.usedAtMs ?? 0) },
        previews,
        options.previewUrl,
      );
    },
    find(principal, ref) {
      const row = ref.startsWith('sbx_') ? sandboxes.get(ref) : sandboxes.byName(principal.project, ref);
      if (row?.project !== principal.project)
        throw new CayError('not_found', `Sandbox "${ref.slice(0, 80)}" does not exist`);
      // Whoever reaches one without isolation reaches the host.
      requireMayHave(principal, row.spec.runtime, row.runtime);
      return row;
    },
    again({ id }) {
      const current = sandboxes.get(id);
      if (!current) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
      return current;
    },
  };

  const registry = openSnapshotRegistry(context);
  const planning = openPlanning(context, registry);
  const pausing = openPausing(context, openArchiving(context, registry));
  const rollingBack = openRollingBack(context, registry, pausing, (id) => retaining.changed(id));
  const resizing = openResizing(context);
  const forking = openForking(context, registry, pausing);
  const guestAccess = openGuestAccess(context, pausing.wake);

  rememberPlacements(backend, [...sandboxes.list({}), ...context.snapshots.all()]);
  // An earlier server may have allowed more time. A timeout is this server's own to keep, so that it is lowered
  // at once, while limits of processes wait for the next start.
  const { timeoutMs: longest } = policy.maxima;
  if (longest !== null)
    database.transaction(() => {
      for (const row of sandboxes.lowerTimeouts(longest, now()))
        note('sandbox.updated', row, undefined, { fields: ['timeoutMs'], cause: 'policy' });
    });
  const changes = backend.watch({ signal: closing.signal });
  await forking.undoUnkeyed();
  await lifecycle.recover(async (row, observed) => {
    if (row.operation?.kind === 'resize') await resizing.finish(row, row.operation, observed);
    else if (row.operation) await rollingBack.finish(row, row.operation, observed);
  });
  await recoverSnapshots(context, registry);
  forking.finishKeyed();
  lifecycle.follow(changes).catch(onError);
  lifecycle.expiry.changed();
  const retaining = openRetaining(context, registry);
  const idleDetector = openIdleDetector(context);
  const idling = openIdling(context, pausing, idleDetector, { lookEveryMs: options.idleLookMs });
  relief = openRelief(context, { pausing, pressure, idleDetector }, { unusedMs: options.reclaimUnusedMs });
  const reconciling = openReconciling(context, { everyMs: options.reconcileMs });
  health = watchHealth({
    backend,
    pressure,
    records: () => void database.get('SELECT count(*) FROM projects'),
    counts: sandboxes.counts,
    now,
  });

  const verbs = sandboxVerbs(context, { pausing, guestAccess, idling, resizing, retaining, previews });
  const { compare } = compareVerb(context, registry, pausing);
  return {
    backend,
    policy,
    events,
    quota,
    idempotency: keyed,
    commandKeys: commandKeys(database, { now, ageing: clock.ageing, quota }),
    ...verbs,
    ...createVerb(context, registry, { start: verbs.start, idling, planning }),
    ...validateVerb(context, planning),
    ...snapshotVerbs(context, registry, pausing, retaining),
    ...templateVerbs(context, registry),
    compare,
    rollback: rollingBack.rollback,
    fork: forking.fork,
    pause: pausing.pause,
    resume: pausing.resume,
    lease: pausing.lease,

    health,
    ...sweepVerbs(context),
    counts: sandboxes.counts,

    async close() {
      closing.abort();
      idling.close();
      pressure.close();
      health?.close();
      retaining.close();
      await relieving;
      await reconciling.close();
      await lifecycle.close();
      await retaining.settled();
      activity.close();
      await backend.close();
      await options.archives?.close();
      events.close();
      database.close();
    },
  };
}
