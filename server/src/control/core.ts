/**
 * The parts that every verb of the control plane is built from: records, clock, queue, quota, events. They
 * depend on the options and on each other alone, and never on a verb. Each folder takes the parts that it
 * uses (`Pick<Core, …>`).
 */
import type { Capabilities, SandboxId } from '@cay/sdk/protocol';
import type { ArchiveSeal, Backend } from '../backends/backend.ts';
import { openClock, type Clock } from '../lib/clock.ts';
import { inBackground } from '../lib/in-background.ts';
import { DEFAULT_POLICY, type Policy } from '../policy/policy.ts';
import type { EventAppender } from '../records/events/events.ts';
import type { Records } from '../records/records.ts';
import type { SandboxRow } from '../records/tables/sandbox-row.ts';
import type { StartedEgress } from '../egress/start-egress.ts';
import type { Store } from '../storage/store.ts';
import { openPressure, type Pressure } from './capacity/pressure.ts';
import { openRecentErrors, type RecentErrors } from './capacity/recent-errors.ts';
import { commandLimit, type CommandLimit } from './commands/command-limit.ts';
import { openCommandLogs, type CommandLogs } from './commands/command-logs.ts';
import type { ControlOptions } from './control-options.ts';
import type { EnforcementReports } from './enforcement/enforcement.ts';
import { openReportStore } from './enforcement/report-store.ts';
import { openNetworks, type Networks } from './egress/networks.ts';
import { pullText } from './images/pull-text.ts';
import { platformCapabilities } from './placement/placement.ts';
import { openActivity, type Activity } from './sandboxes/activity.ts';
import { openLookup, type SandboxLookup } from './sandboxes/lookup.ts';
import { openOperations, type Operations } from './sandboxes/operations.ts';
import { archiveSeal } from './snapshots/archive-seal.ts';
import { openIdempotency, type Idempotency } from './tenants/idempotency.ts';
import { previewTokens, type PreviewTokens } from './tenants/preview-tokens.ts';
import type { Principal } from './tenants/principal.ts';
import { openProjects, type Projects } from './tenants/projects.ts';
import { quotaLedger, type QuotaLedger } from './tenants/quota-ledger.ts';
import { openReservations } from './tenants/reservations.ts';

/**
 * Appends an event of a sandbox. `on` is the transaction that records the change, with which the event is
 * kept or not; or the records, for what changes no record.
 */
export type RecordEvent = (
  on: { readonly events: EventAppender },
  type: string,
  row: Pick<SandboxRow, 'id' | 'project'>,
  principal: Principal | undefined,
  data?: Record<string, unknown>,
) => Promise<void>;

export interface Core {
  readonly backend: Backend;
  readonly capabilities: Capabilities;
  /** The capabilities of one of several platforms. Rejects `unavailable` while it does not answer. */
  capabilitiesOf(platform: string | undefined): Promise<Capabilities>;
  /** What the operator allows callers to ask for. */
  readonly policy: Policy;
  readonly records: Records;
  readonly projects: Projects;
  readonly idempotency: Idempotency;
  readonly lookup: SandboxLookup;
  readonly previews: PreviewTokens;
  readonly operations: Operations;
  readonly activity: Activity;
  readonly commandLimit: CommandLimit;
  readonly quota: QuotaLedger;
  readonly pressure: Pressure;
  /** The store of archived sandboxes, if there is one, and the signature of this installation's archives. */
  readonly archives: { readonly store: Store | undefined; readonly seal: ArchiveSeal };
  readonly clock: Clock;
  readonly recordEvent: RecordEvent;
  /** What carries connections out of sandboxes, if anything does, and the policies that it is given. */
  readonly egress: StartedEgress | undefined;
  readonly networks: Networks;
  /** What platforms were seen to enforce. */
  readonly enforcement: EnforcementReports;
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

export async function openCore(options: ControlOptions, closing: AbortSignal): Promise<Core> {
  const { backend, records, policy = DEFAULT_POLICY, previewUrl } = options;
  const { events } = records;
  const clock = openClock({ now: options.now, monotonic: options.monotonic });
  const recentErrors = openRecentErrors(clock.now);
  const reporter = (part: string) => (error: unknown) => {
    recentErrors.add(error);
    options.onError?.(error, part);
  };
  const onError = reporter('control');
  const projects = openProjects(options.quotaBounds);
  const activity = openActivity({ save: records.sandboxes.used, clock, onError });
  const reservations = openReservations();
  const pressure = await openPressure({
    backend,
    dataDir: options.dataDir,
    settings: options.pressure,
    promised: (tx, reserved) => reservations.promised(tx ?? records, reserved),
    onChange(resource, { level, share, free, total }, before) {
      const data = { resource, level, before, share: Math.round(share * 1000) / 1000, free, total };
      if (!closing.aborted) inBackground(events.append({ type: 'pressure.changed', data }), onError);
    },
    now: clock.now,
    onError,
  });
  const quota = quotaLedger({ records, reservations, projects, write: pressure.write });
  quota.counts('snapshots', 'snapshots', async (project, on) => (await on.snapshots.usage(project)).count);
  quota.counts(
    'snapshotBytes',
    'snapshots',
    async (project, on) => (await on.snapshots.usage(project)).bytes,
  );
  quota.counts('snapshotBytes', 'hibernated', (project, on) => on.sandboxes.imageBytes(project));
  const capabilities = await backend.capabilities();
  const previews = previewTokens(await records.secrets.get('previews'));
  const commandLogs = openCommandLogs({
    directory: options.directories.logs,
    records,
    connect: (id, call) => backend.connect(id, call),
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
    projects,
    idempotency: openIdempotency(records, quota),
    lookup: openLookup({
      records,
      activity,
      previews,
      previewUrl,
      pullText: (template) => pullText(backend, template),
    }),
    previews,
    operations: openOperations({ records, leases: options.leases, onError }),
    activity,
    commandLimit: commandLimit(policy.maxima.commands),
    quota,
    pressure,
    archives: { store: options.archives, seal: archiveSeal(await records.secrets.get('archives')) },
    clock,
    egress: options.egress,
    networks: openNetworks({
      egress: options.egress,
      records,
      projects,
      quota,
      onError: reporter('network'),
    }),
    enforcement: openReportStore(options.directories.enforcement),
    recordEvent: (on, type, row, principal, data = {}) =>
      on.events.append({ type, project: row.project, sandbox: row.id, key: principal?.key ?? null, data }),
    commandLogs,
    drainLogs: commandLogs.drain,
    recentErrors,
    onError,
    reporter,
    closing,
  };
}
