/**
 * The control plane: what the API may ask for, and what keeps every promise that the API made.
 *
 * It owns ids, names, records, quotas and expiry. A backend (`backends/backend.ts`) owns the containers,
 * trees and images, and does what the records say.
 *
 * Who calls: the REST API and the E2B API for each request, on behalf of a principal. A principal sees only
 * its own project; anything else is `not_found`. A sandbox is named by its id, or by the name that its
 * project gave it.
 *
 * Order: every change records the intent, acts, and records the result. Each step can be repeated, so a
 * server that was killed between any two lines finishes or undoes what it finds when it opens again.
 *
 * Concurrency: all verbs may be called at any time. The changes of one sandbox run one after the other. Where
 * waiting would act on another state than the caller saw (a rollback during a rollback), a verb rejects
 * `conflict`.
 *
 * Errors are `CayError`s with closed codes. Their messages name fields of the request.
 *
 * ```ts
 * const control = await openControl({ backend, database, sandboxes, projects, events, previews, … });
 * const me: Principal = { project: project.id, key: key.id, role: 'member' };
 * const { sandbox } = await control.create(me, CreateSandboxSchema.parse({ name: 'box' }));
 * const { guest } = await control.enter(me, 'box');
 * await guest.files('user').write('/home/user/a', Buffer.from('one'));
 * const before = await control.turn(me, 'box', {});
 * await guest.files('user').write('/home/user/a', Buffer.from('two'));
 * await control.rollback(me, 'box', { to: before.turn! });
 * await control.remove(me, 'box');
 * await control.close();
 * ```
 */
import type { Backend, Orphan } from '../backends/backend.ts';
import type { Policy } from '../policy/policy.ts';
import type { CommandKeys } from './commands/command-keys.ts';
import type { Idempotency } from './tenants/idempotency.ts';
import type { HealthWatch } from './capacity/health.ts';
import type { PauseVerbs } from './pausing/pause.ts';
import type { SandboxVerbs } from './sandboxes/sandbox.ts';
import type { SnapshotVerbs, TravelVerbs } from './snapshots/snapshot.ts';
import type { TemplateVerbs } from './templates/template.ts';
import type { Principal } from './tenants/principal.ts';
import type { QuotaLedger } from './tenants/quota-ledger.ts';
import type { EventLog } from './events/event-log.ts';

export type { Comparison } from './snapshots/snapshot.ts';

export interface Control extends SandboxVerbs, SnapshotVerbs, TravelVerbs, PauseVerbs, TemplateVerbs {
  readonly backend: Backend;
  /** What the operator allows callers to ask for. */
  readonly policy: Policy;
  readonly events: EventLog;
  /** What projects use of their quotas, for other parts of the server that store something for them. */
  readonly quota: QuotaLedger;
  /** Idempotency keys of calls that make something. */
  readonly idempotency: Idempotency;
  /** Idempotency keys of commands. */
  readonly commandKeys: CommandKeys;
  readonly health: HealthWatch;
  /** Records an event of what a sweep of the backend has removed. */
  noteSwept(orphans: Orphan[]): void;
  /**
   * Removes orphans: resources without a record. With `dryRun` only lists them. Rejects `unsupported` if the
   * backend cannot have any.
   */
  sweep(principal: Principal, options?: { dryRun?: boolean }): Promise<Orphan[]>;
  /** The number of sandboxes in each state, of one project or of all. */
  counts(project?: string): Record<string, number>;
  close(): Promise<void>;
}
