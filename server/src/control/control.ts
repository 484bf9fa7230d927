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
 * const control = await openControl({ backend, records, previewUrl, directories });
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
import type { Capabilities, Health } from '@cay/sdk/protocol';
import type { CallScope, Orphan } from '../backends/backend.ts';
import type { Policy } from '../policy/policy.ts';
import type { ControlMetrics } from './capacity/control-metrics.ts';
import type { BucketVerbs } from './buckets/bucket.ts';
import type { CommandVerbs } from './commands/command.ts';
import type { NetworkVerbs } from './egress/network.ts';
import type { EnforcementVerbs } from './enforcement/enforcement.ts';
import type { EventVerbs } from './events/event-verbs.ts';
import type { WebhookVerbs } from './events/webhooks/webhook-verbs.ts';
import type { HostPortVerbs } from './host-ports/host-port.ts';
import type { ImageVerbs } from './images/image.ts';
import type { InterpreterVerbs } from './interpreter/interpreter.ts';
import type { PauseVerbs } from './pausing/pause.ts';
import type { SandboxVerbs } from './sandboxes/sandbox.ts';
import type { SecretVerbs } from './secrets/secret.ts';
import type { StatsVerbs } from './stats/stats.ts';
import type { MoveVerbs } from './placement/move.ts';
import type { SnapshotVerbs, TravelVerbs } from './snapshots/snapshot.ts';
import type { Builds } from './templates/builds/build.ts';
import type { ToolVerbs } from './tools/tool.ts';
import type { TemplateVerbs } from './templates/template.ts';
import type { KeyVerbs } from './tenants/key-verbs.ts';
import type { Principal } from './tenants/principal.ts';
import type { VolumeVerbs } from './volumes/volume.ts';
import type { TokenEpochRecords } from '../records/tables/token-epochs.ts';
import type { ProjectVerbs } from './tenants/project-verbs.ts';

export type { EnteredSandbox } from './sandboxes/sandbox.ts';
export type { Comparison } from './snapshots/snapshot.ts';

/** What tokens of a sandbox are derived from, for surfaces that give out tokens of their own. */
export interface TokenSource {
  /** A secret of this installation. Each surface has its own. */
  secret(surface: 'e2b'): Uint8Array;
  readonly epochs: Pick<TokenEpochRecords, 'ofProject' | 'ofSandbox' | 'revoked'>;
}

/** Verbs for those who run the server. */
export interface OperatorVerbs {
  /**
   * One verdict, and the findings it comes from. An admin also sees recent errors; others see the sandboxes
   * of their own project alone.
   */
  health(principal: Principal): Promise<Health>;
  /** Whether records and backend answer. */
  ready(): Promise<{ records: boolean; backend: boolean }>;
  metrics(): Promise<ControlMetrics>;
  /** What sandboxes can do here, and what the operator allows. */
  capabilities(options?: CallScope): Promise<Capabilities>;
  /** Adds a failure in the background to the recent errors. */
  noteError(error: unknown): void;
  /** Writes an event about orphans that a backend removed by itself. */
  noteSwept(orphans: Orphan[]): void;
  /**
   * Finds orphans and removes them; with `dryRun` only lists them. Rejects `unsupported` for a backend that
   * leaves none.
   */
  sweep(principal: Principal, options?: { dryRun?: boolean }): Promise<Orphan[]>;
  /** All records and events as one tar archive. `withKey` adds the key that secrets are sealed with. */
  backup(
    principal: Principal,
    options: { signal: AbortSignal; withKey: boolean },
  ): Promise<AsyncIterable<Uint8Array>>;
  /** Sandboxes by state, of one project or of all. */
  counts(project?: string): Promise<Record<string, number>>;
}

export interface Control
  extends
    SandboxVerbs,
    SnapshotVerbs,
    TravelVerbs,
    MoveVerbs,
    StatsVerbs,
    PauseVerbs,
    TemplateVerbs,
    OperatorVerbs {
  readonly commands: CommandVerbs;
  readonly builds: Builds;
  readonly interpreter: InterpreterVerbs;
  readonly images: ImageVerbs;
  readonly volumes: VolumeVerbs;
  readonly buckets: BucketVerbs;
  readonly tools: ToolVerbs;
  readonly network: NetworkVerbs;
  readonly hostPorts: HostPortVerbs;
  readonly secrets: SecretVerbs;
  readonly enforcement: EnforcementVerbs;
  readonly events: EventVerbs;
  readonly webhooks: WebhookVerbs;
  readonly keys: KeyVerbs;
  readonly projects: ProjectVerbs;
  readonly tokens: TokenSource;
  /** What callers may ask for. */
  readonly policy: Policy;
  close(): Promise<void>;
}
