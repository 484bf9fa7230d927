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
import { canRoute, type Backend, type CallOptions } from '../backends/backend.ts';
import { openClock } from '../lib/clock.ts';
import { openHistogram } from '../lib/histogram.ts';
import { requireMayHave } from '../policy/allow-runtime.ts';
import { loweredLimits } from '../policy/bound-limits.ts';
import { DEFAULT_POLICY, policyFacts, type Policy } from '../policy/policy.ts';
import { openActivity } from './sandboxes/activity.ts';
import { archiveSeal } from './snapshots/archive-seal.ts';
import { openArchiving } from './pausing/archive.ts';
import { commandLimit } from './commands/command-limit.ts';
import { commandKeys } from './commands/command-keys.ts';
import { openCommandLogs, type CommandLogs } from './commands/command-logs.ts';
import { openCommands } from './commands/open-commands.ts';
import { controlMetrics } from './capacity/control-metrics.ts';
import { compareVerb } from './snapshots/compare.ts';
import type { Context } from './context.ts';
import type { Control } from './control.ts';
import { createVerb } from './sandboxes/create-sandbox.ts';
import { openOperations } from './sandboxes/operations.ts';
import { openForking } from './snapshots/fork.ts';
import { platformOf } from './placement/survey-platforms.ts';
import { watchHealth, type HealthWatch } from './capacity/health.ts';
import { idempotency } from './tenants/idempotency.ts';
import { keyVerbs } from './tenants/key-verbs.ts';
import { projectVerbs } from './tenants/project-verbs.ts';
import { tokenEpochs, type TokenEpochs } from './tenants/token-epochs.ts';
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
import { backupVerb } from './recovery/backup.ts';
import { recoverSnapshots } from './recovery/recover-snapshots.ts';
import type { Database } from '../records/database.ts';
import type { EventLog } from './events/event-log.ts';
import { eventVerbs } from './events/event-verbs.ts';
import { webhookVerbs } from './events/webhooks/webhook-verbs.ts';
import { openWebhooks, type WebhooksOptions } from './events/webhooks/webhooks.ts';
import { forkRecords } from '../records/forks.ts';
import { keyRecords } from '../records/keys.ts';
import type { ProjectRecords } from '../records/projects.ts';
import type { SandboxRecords } from '../records/sandboxes.ts';
import { installationSecret } from '../records/secrets.ts';
import { snapshotRecords } from '../records/snapshots.ts';
import { templateRecords } from '../records/templates.ts';
import { offeredCapabilities } from './placement/offered-capabilities.ts';
import { platformCapabilities } from './placement/platform-capabilities.ts';
import { openResizing } from './sandboxes/resize-sandbox.ts';
import { openRetaining } from './snapshots/retention.ts';
import { openRollingBack } from './snapshots/rollback.ts';
import { sandboxVerbs } from './sandboxes/sandbox-verbs.ts';
import { showSandbox } from './sandboxes/show-sandbox.ts';
import { snapshotVerbs } from './snapshots/snapshot-verbs.ts';
import { sweepVerbs } from './recovery/sweep.ts';
import { openBuilds } from './templates/builds/builds.ts';
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
  /** Where command logs and files for template builds are kept. */
  directories: { logs: string; buildFiles: string };
  /** How often tokens were revoked. Default: read from the records. */
  epochs?: TokenEpochs;
  webhooks?: Pick<WebhooksOptions, 'allowPrivate' | 'pace'>;
  /** Makes an archive of the records; see `OperatorVerbs.backup`. Without it backups are refused. */
  takeBackup?(options: { signal: AbortSignal; withKey: boolean }): Promise<AsyncIterable<Uint8Array>>;
  now?(): number;
  /** Milliseconds since whenever, without jumps. Default: the process's own. */
  monotonic?(): number;
  /** `part` is the part of the control plane that failed. */
  onError?(error: unknown, part: string): void;
}

export async function openControl(options: ControlOptions): Promise<Control> {
  const { backend, database, sandboxes, projects, events, previews, policy = DEFAULT_POLICY } = options;
  const clock = openClock({ now: options.now, monotonic: options.monotonic });
  const { now } = clock;
  const drain = async (id: SandboxId) => logs?.drain(id);
  const failed = (part: string) => (error: unknown) => {
    health?.noteError(error);
    options.onError?.(error, part);
  };
  const onError = failed('control');
  let logs: CommandLogs | undefined;
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

  if (canRoute(backend)) {
    for (const row of [...sandboxes.list({}), ...context.snapshots.all()]) {
      const platform = platformOf(row, backend);
      if (platform !== undefined) backend.place(row.id, platform);
    }
  }
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
  const { create } = createVerb(context, registry, { start: verbs.start, idling, planning });
  const connect = (id: SandboxId, call?: CallOptions) => backend.connect(id, call);
  const commandLogs = (logs = openCommandLogs({
    directory: options.directories.logs,
    database,
    sandboxes,
    connect,
    events,
    quota,
    mostRunning: policy.maxima.commands,
    onError: failed('command logs'),
  }));
  const createTimes = openHistogram();
  const commandTimes = openHistogram();
  const epochs = options.epochs ?? tokenEpochs(database);
  const keys = keyRecords(database);
  const webhooks = openWebhooks({
    ...options.webhooks,
    database,
    events,
    quota,
    secret: installationSecret(database, 'webhooks'),
    onError: failed('webhooks'),
  });
  const core: Omit<Control, 'builds'> = {
    policy,
    ...verbs,
    async create(...call) {
      const from = performance.now();
      const created = await create(...call);
      createTimes.observe((performance.now() - from) / 1000);
      return created;
    },
    ...validateVerb(context, planning),
    ...snapshotVerbs(context, registry, pausing, retaining),
    ...templateVerbs(context, registry),
    ...compareVerb(context, registry, pausing),
    rollback: rollingBack.rollback,
    fork: forking.fork,
    pause: pausing.pause,
    resume: pausing.resume,
    lease: pausing.lease,

    commands: openCommands({
      find: context.find,
      enter: (principal, ref) => guestAccess.enter(context.find(principal, ref).id),
      connect,
      attend: (id) => activity.within(id, 'client'),
      expose: verbs.expose,
      sandboxes,
      events,
      keys: commandKeys(database, { now, ageing: clock.ageing, quota }),
      logs: commandLogs,
      onStarted: (seconds) => commandTimes.observe(seconds),
      onError,
    }),
    events: eventVerbs({ events, keys }),
    webhooks: webhookVerbs(webhooks, keyed),
    keys: keyVerbs({
      keys,
      projects,
      epochs,
      events,
      idempotency: keyed,
      secret: installationSecret(database, 'keys'),
    }),
    projects: projectVerbs({ projects, keys, quota, epochs, events, idempotency: keyed }),
    tokens: { secret: (surface) => installationSecret(database, surface), epochs },

    ...sweepVerbs(context),
    health: (principal) => health!.check(principal.role === 'admin' ? undefined : principal.project),
    ready: () => health!.ready(),
    noteError: (error) => health!.noteError(error),
    capabilities: async (call) => ({
      ...offeredCapabilities(await backend.capabilities(call)),
      policy: policyFacts(policy),
    }),
    metrics: controlMetrics({
      counts: () => sandboxes.counts(),
      pressure,
      creates: createTimes.snapshot,
      commandStarts: commandTimes.snapshot,
      projects,
      quota,
      webhooks: webhooks.counts,
    }),
    backup: backupVerb(events, options.takeBackup),
    counts: sandboxes.counts,

    async close() {
      await Promise.all([builds.close(), commandLogs.close(), webhooks.close()]);
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
  const builds = await openBuilds({
    control: core,
    database,
    directory: options.directories.buildFiles,
    quota,
    onError: failed('builds'),
  });
  return { ...core, builds };
}
