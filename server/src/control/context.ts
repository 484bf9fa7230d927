/** What the verbs of the control plane share. */
import { CayError, type Capabilities, type Sandbox, type SandboxId } from '@cay/sdk/protocol';
import type { Clock } from '../lib/clock.ts';
import type { Store } from '../storage/store.ts';
import type { ArchiveSeal, Backend, Snapshotting } from '../backends/backend.ts';
import type { Activity } from './sandboxes/activity.ts';
import type { Operations } from './sandboxes/operations.ts';
import type { Idempotency } from './tenants/idempotency.ts';
import type { Lifecycle } from './sandboxes/lifecycle.ts';
import type { Pressure } from './capacity/pressure.ts';
import type { Policy } from '../policy/policy.ts';
import type { CommandLimit } from './commands/command-limit.ts';
import type { Principal } from './tenants/principal.ts';
import type { QuotaLedger } from './tenants/quota-ledger.ts';
import type { Database } from '../records/database.ts';
import type { EventLog } from './events/event-log.ts';
import type { ForkRecords } from '../records/forks.ts';
import type { ProjectRecords } from '../records/projects.ts';
import type { SandboxRecords, SandboxRow } from '../records/sandboxes.ts';
import type { SnapshotRecords } from '../records/snapshots.ts';
import type { TemplateRecords } from '../records/templates.ts';

export interface Context {
  readonly backend: Backend;
  readonly capabilities: Capabilities;
  /** What may be asked for. */
  readonly policy: Policy;
  readonly commands: CommandLimit;
  /** Those of a platform, where there are several. Rejects `unavailable` while it is away. */
  capabilitiesOf(platform: string | undefined): Promise<Capabilities>;
  readonly database: Database;
  readonly sandboxes: SandboxRecords;
  readonly snapshots: SnapshotRecords;
  readonly templates: TemplateRecords;
  readonly forks: ForkRecords;
  readonly projects: ProjectRecords;
  readonly events: EventLog;
  readonly idempotency: Idempotency;
  readonly operations: Operations;
  readonly activity: Activity;
  readonly quota: QuotaLedger;
  readonly pressure: Pick<Pressure, 'admit' | 'write'>;
  readonly lifecycle: Lifecycle;
  /** Signs the archives of this installation. */
  readonly seal: ArchiveSeal;
  /** Where archived sandboxes are; absent where there is no such place. */
  readonly archives: Store | undefined;
  /** Records what the sandbox's commands have written so far, before their processes end. */
  drain(id: SandboxId): Promise<void>;
  /** The time of day, as `now`, and what has passed, which is another thing. */
  readonly clock: Clock;
  now(): number;
  onError(error: unknown): void;
  show(row: SandboxRow): Sandbox;
  note(
    type: string,
    row: Pick<SandboxRow, 'id' | 'project'>,
    principal: Principal | undefined,
    data?: Record<string, unknown>,
  ): void;
  /** By id or name. Rejects `not_found`. */
  find(principal: Principal, ref: string): SandboxRow;
  /** The record as it is by now. Rejects `not_found` if it is gone. */
  again(row: Pick<SandboxRow, 'id'>): SandboxRow;
}

export function snapshotting({ backend }: Pick<Context, 'backend'>): Snapshotting {
  const snapshots = backend.ability('snapshots');
  if (snapshots) return snapshots;
  throw new CayError('unsupported', `The ${backend.name} backend cannot take snapshots`);
}
