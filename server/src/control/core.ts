/**
 * The parts that every verb of the control plane is built from: records, clock, queue, quota, events. They
 * depend on the options and on each other alone, and never on a verb. Each folder takes the parts that it
 * uses (`Pick<Core, …>`).
 */
import type { Capabilities, SandboxId } from '@cay/sdk/protocol';
import type { ArchiveSeal, Backend } from '../backends/backend.ts';
import { openClock, type Clock } from '../lib/clock.ts';
import { DEFAULT_POLICY, type Policy } from '../policy/policy.ts';
import type { Database } from '../records/database.ts';
import { forkRecords, type ForkRecords } from '../records/forks.ts';
import type { ProjectRecords } from '../records/projects.ts';
import type { SandboxRecords, SandboxRow } from '../records/sandboxes.ts';
import { installationSecret } from '../records/secrets.ts';
import { snapshotRecords, type SnapshotRecords } from '../records/snapshots.ts';
import { templateRecords, type TemplateRecords } from '../records/templates.ts';
import type { Store } from '../storage/store.ts';
import { openPressure, type Pressure } from './capacity/pressure.ts';
import { openRecentErrors, type RecentErrors } from './capacity/recent-errors.ts';
import { commandLimit, type CommandLimit } from './commands/command-limit.ts';
import { openCommandLogs, type CommandLogs } from './commands/command-logs.ts';
import type { EventLog } from './events/event-log.ts';
import type { ControlOptions } from './control-options.ts';
import { pullText } from './images/pull-text.ts';
import { platformCapabilities } from './placement/placement.ts';
import { openActivity, type Activity } from './sandboxes/activity.ts';
import { openLookup, type SandboxLookup } from './sandboxes/lookup.ts';
import { openOperations, type Operations } from './sandboxes/operations.ts';
import { archiveSeal } from './snapshots/archive-seal.ts';
import { idempotency, type Idempotency } from './tenants/idempotency.ts';
import type { Principal } from './tenants/principal.ts';
import { quotaLedger, type QuotaLedger } from './tenants/quota-ledger.ts';
import { openReservations } from './tenants/reservations.ts';

export interface Core {
  readonly backend: Backend;
  readonly capabilities: Capabilities;
  /** The capabilities of one of several platforms. Rejects `unavailable` while it does not answer. */
  capabilitiesOf(platform: string | undefined): Promise<Capabilities>;
  /** What the operator allows callers to ask for. */
  readonly policy: Policy;
  readonly records: ControlRecords;
  readonly lookup: SandboxLookup;
  readonly operations: Operations;
  readonly activity: Activity;
  readonly commandLimit: CommandLimit;
  readonly quota: QuotaLedger;
  readonly pressure: Pressure;
  /** The store of archived sandboxes, if there is one, and the signature of this installation's archives. */
  readonly archives: { readonly store: Store | undefined; readonly seal: ArchiveSeal };
  readonly clock: Clock;
  readonly events: EventLog;
  /** Appends an event of a sandbox. In a transaction it is kept exactly if the transaction is. */
  recordEvent(
    type: string,
    row: Pick<SandboxRow, 'id' | 'project'>,
    principal: Principal | undefined,
    data?: Record<string, unknown>,
  ): void;
  /** The recorded output of commands. It records nothing before it is started. */
  readonly commandLogs: CommandLogs;
  /** Records what the sandbox's commands have written so far, before their processes end. */
  drainLogs(id: SandboxId): Promise<void>;
  readonly recentErrors: RecentErrors;
  /** Reports an error that no caller waits for. */
  onError(error: unknown): void;
  /** `onError` for another part of the control plane. */
  reporter(part: string): (error: unknown) => void;
  /** Aborted when the control plane closes. */
  readonly closing: AbortSignal;
}

export interface ControlRecords {
  readonly database: Database;
  readonly sandboxes: SandboxRecords;
  readonly snapshots: SnapshotRecords;
  readonly templates: TemplateRecords;
  readonly forks: ForkRecords;
  readonly projects: ProjectRecords;
  readonly idempotency: Idempotency;
}

export async function openCore(options: ControlOptions, closing: AbortSignal): Promise<Core> {
  const { backend, database, events, policy = DEFAULT_POLICY, previews, previewUrl } = options;
  const clock = openClock({ now: options.now, monotonic: options.monotonic });
  const recentErrors = openRecentErrors(clock.now);
  const reporter = (part: string) => (error: unknown) => {
    recentErrors.add(error);
    options.onError?.(error, part);
  };
  const onError = reporter('control');
  const { sandboxes, projects } = options;
  const snapshots = snapshotRecords(database);
  const activity = openActivity({ save: sandboxes.used, clock, onError });
  const reservations = openReservations(sandboxes);
  const pressure = await openPressure({
    backend,
    dataDir: options.dataDir,
    settings: options.pressure,
    promised: reservations.promised,
    onChange(resource, { level, share, free, total }, before) {
      const data = { resource, level, before, share: Math.round(share * 1000) / 1000, free, total };
      if (!closing.aborted) events.append({ type: 'pressure.changed', data });
    },
    now: clock.now,
    onError,
  });
  const quota = quotaLedger({ reservations, projects, write: pressure.write });
  quota.counts('snapshots', 'snapshots', (project) => snapshots.usage(project).count);
  quota.counts('snapshotBytes', 'snapshots', (project) => snapshots.usage(project).bytes);
  quota.counts('snapshotBytes', 'hibernated', (project) => sandboxes.imageBytes(project));
  const records: ControlRecords = {
    database,
    sandboxes,
    snapshots,
    templates: templateRecords(database),
    forks: forkRecords(database),
    projects,
    idempotency: idempotency(database, { now: clock.now, ageing: clock.ageing, quota }),
  };
  const capabilities = await backend.capabilities();
  const commandLogs = openCommandLogs({
    directory: options.directories.logs,
    database,
    sandboxes,
    connect: (id, call) => backend.connect(id, call),
    events,
    quota,
    mostRunning: policy.maxima.commands,
    onError: reporter('command logs'),
  });
  return {
    backend,
    capabilities,
    capabilitiesOf: platformCapabilities(backend, capabilities),
    policy,
    records,
    lookup: openLookup({
      sandboxes,
      activity,
      previews,
      previewUrl,
      pullText: (template) => pullText(backend, template),
    }),
    operations: openOperations(),
    activity,
    commandLimit: commandLimit(policy.maxima.commands),
    quota,
    pressure,
    archives: { store: options.archives, seal: archiveSeal(installationSecret(database, 'archives')) },
    clock,
    events,
    recordEvent: (type, row, principal, data = {}) =>
      events.append({ type, project: row.project, sandbox: row.id, key: principal?.key ?? null, data }),
    commandLogs,
    drainLogs: commandLogs.drain,
    recentErrors,
    onError,
    reporter,
    closing,
  };
}
