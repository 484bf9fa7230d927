/**
 * What the API asks of the control plane.
 *
 * A sandbox is named by its id, or by the name that its project gave it; a snapshot by its id, or with its
 * sandbox by its name or turn's number. Every verb rejects `not_found` for what is not the principal's own.
 *
 * The changes of one sandbox happen one after the other. Where waiting would act on something else than the
 * caller saw (a rollback while another one is under way, a removal during a snapshot), a verb rejects
 * `conflict`.
 *
 * A paused sandbox wakes for whoever needs it: `enter`, `preview` and every verb that needs it here.
 */
import type {
  Compare,
  CreateSandbox,
  FileChange,
  Fork,
  Forked,
  ImportSnapshot,
  ImportedSnapshot,
  ListSandboxes,
  ListSnapshots,
  PauseSandbox,
  Rollback,
  RolledBack,
  Sandbox,
  SandboxId,
  SandboxPage,
  SaveTemplate,
  Snapshot,
  SnapshotPage,
  SnapshotRef,
  SnapshotTree,
  TakeSnapshot,
  TakeTurn,
  Template,
  UpdateSandbox,
  Validation,
} from '@cay/sdk/protocol';
import type { Backend, CallScope, Orphan, SnapshotFiles } from '../backends/backend.ts';
import type { Guest } from '../guest/guest.ts';
import type { Policy } from '../policy/policy.ts';
import type { CommandKeys } from './commands/command-keys.ts';
import type { Idempotency } from './tenants/idempotency.ts';
import type { HealthWatch } from './capacity/health.ts';
import type { Principal } from './tenants/principal.ts';
import type { QuotaLedger } from './tenants/quota-ledger.ts';
import type { EventLog } from './events/event-log.ts';
import type { PortRecord, SandboxRow } from '../records/sandboxes.ts';

export interface Keyed {
  /** Makes a call repeatable: the same key and request answer with what the first call made. */
  idempotencyKey?: string;
}

export interface Creating extends Keyed {
  /**
   * Of a snapshot: user and directory are those of the request also where these are the default, which else
   * stands for the snapshot's own.
   */
  exactly?: boolean;
}

export interface SandboxVerbs {
  create(
    principal: Principal,
    request: CreateSandbox,
    options?: Creating,
  ): Promise<{ sandbox: Sandbox; created: boolean }>;
  /**
   * What would become of a create: which platform is chosen, and all that would be refused or not be
   * honoured. Makes nothing.
   */
  validate(principal: Principal, request: CreateSandbox): Promise<Validation>;
  get(principal: Principal, ref: string): Sandbox;
  list(principal: Principal, query: ListSandboxes): SandboxPage;
  update(principal: Principal, ref: string, changes: UpdateSandbox): Promise<Sandbox>;
  start(principal: Principal, ref: string): Promise<Sandbox>;
  stop(principal: Principal, ref: string, options?: { graceMs?: number }): Promise<Sandbox>;
  /**
   * Absent is done. Named snapshots and those that were asked for stay; turns go with it. `onIntent` is
   * called when the record says that it is to go: from then on it goes, whatever happens to the server.
   */
  remove(principal: Principal, ref: string, options?: { onIntent?(): void }): Promise<void>;
  /**
   * The guest of a sandbox that runs, and what commands and files start from. Whatever is asked of that guest
   * counts as use, and wakes the sandbox if it was paused meanwhile. Rejects `failed_precondition` if it is
   * stopped or has failed.
   */
  enter(principal: Principal, ref: string): Promise<{ guest: Guest; row: SandboxRow }>;
  /**
   * Counts somebody who waits for something inside as one of its clients, until that is disposed of. Wakes
   * nothing.
   */
  attend(principal: Principal, ref: string): Disposable;
  expose(principal: Principal, ref: string, port: PortRecord): Promise<Sandbox>;
  unexpose(principal: Principal, ref: string, port: number): Promise<Sandbox>;
  /** For preview traffic, which carries no key: the guest, if that port is exposed and the token fits. */
  preview(id: SandboxId, port: number, token: string | undefined): Promise<Guest>;
  /**
   * Counts a connection of a visitor until it is disposed of. Throws `resource_exhausted` beyond the
   * project's quota.
   */
  previewConnection(id: SandboxId): Disposable;
}

/** Whose snapshot a name or a number means. An id needs none. */
export interface SnapshotScope {
  sandbox?: string;
}

export interface SnapshotVerbs {
  /** Keeps what the sandbox is now. Rejects `already_exists` for a name that its snapshots have. */
  snapshot(principal: Principal, ref: string, request: TakeSnapshot): Promise<Snapshot>;
  /** Waits for commands that somebody waits for, then keeps what the sandbox is under the next number. */
  turn(principal: Principal, ref: string, request: TakeTurn): Promise<Snapshot>;
  snapshots(principal: Principal, query: ListSnapshots): SnapshotPage;
  getSnapshot(principal: Principal, snapshot: SnapshotRef, scope?: SnapshotScope): Snapshot;
  /**
   * What descends from it becomes its parent's. Rejects `failed_precondition` while sandboxes stand on it or
   * a template is made of it.
   */
  removeSnapshot(principal: Principal, snapshot: SnapshotRef, scope?: SnapshotScope): Promise<void>;
  /** One portable archive. */
  exportSnapshot(
    principal: Principal,
    snapshot: SnapshotRef,
    scope?: SnapshotScope & CallScope,
  ): Promise<{ snapshot: Snapshot; data: AsyncIterable<Uint8Array> }>;
  /**
   * Takes an archive in, whole or not at all. Memory that this installation has not signed is left out,
   * unless an admin allows it. Rejects `invalid_argument` for one that is damaged.
   */
  importSnapshot(
    principal: Principal,
    data: AsyncIterable<Uint8Array>,
    request: ImportSnapshot,
    options?: CallScope,
  ): Promise<ImportedSnapshot>;
  tree(principal: Principal, ref: string): SnapshotTree;
}

/** Two moments of a sandbox side by side, until `release` is called. */
export interface Comparison {
  /** Null is now. */
  from: Snapshot | null;
  to: Snapshot | null;
  /** In the order of paths. May be read once. */
  changes: AsyncIterable<FileChange>;
  before: SnapshotFiles;
  after: SnapshotFiles;
  /** Lets go of what was only made for the comparison. */
  release(): Promise<void>;
}

export interface TravelVerbs {
  /**
   * Puts the sandbox back. What it was becomes a snapshot first; when it rejects the sandbox is as it was.
   */
  rollback(principal: Principal, ref: string, request: Rollback): Promise<RolledBack>;
  /**
   * Makes sandboxes that go on from what this one is: all of them or none. Those of one that is stopped are
   * stopped.
   */
  fork(principal: Principal, ref: string, request: Fork, options?: Keyed): Promise<Forked>;
  compare(principal: Principal, ref: string, request: Compare, options?: CallScope): Promise<Comparison>;
}

export interface PauseVerbs {
  /**
   * Refuses new work, waits for what runs, then pauses. A paused one goes further down the ladder, never up.
   */
  pause(principal: Principal, ref: string, request: PauseSandbox): Promise<Sandbox>;
  resume(principal: Principal, ref: string): Promise<Sandbox>;
  /** Keeps it from being idle for so long from now; 0 gives the lease back. */
  lease(principal: Principal, ref: string, request: { forMs: number }): Promise<Sandbox>;
}

export interface TemplateVerbs {
  /** Rejects `already_exists` unless `replace`. */
  saveTemplate(principal: Principal, name: string, request: SaveTemplate): Promise<Template>;
  /** Those that the backend brings, and the project's own. */
  templates(principal: Principal): Promise<Template[]>;
  /** Absent is done. Its snapshot stays, unless it is a turn of a sandbox that is gone. */
  removeTemplate(principal: Principal, name: string): Promise<void>;
}

export interface Control extends SandboxVerbs, SnapshotVerbs, TravelVerbs, PauseVerbs, TemplateVerbs {
  readonly backend: Backend;
  /** What may be asked for. */
  readonly policy: Policy;
  readonly events: EventLog;
  /** What projects take of their quotas, for those who keep something for them elsewhere. */
  readonly quota: QuotaLedger;
  /** Callers' keys for what is to be made once. */
  readonly idempotency: Idempotency;
  /** Callers' keys for commands that are to run once. */
  readonly commandKeys: CommandKeys;
  readonly health: HealthWatch;
  /** Notes what a sweep has taken away by itself. */
  noteSwept(orphans: Orphan[]): void;
  /**
   * Looks for what was left behind and takes it away; with `dryRun` only tells. Rejects `unsupported` where
   * there is nothing to look at.
   */
  sweep(principal: Principal, options?: { dryRun?: boolean }): Promise<Orphan[]>;
  /** Sandboxes by state, of one project or of all. */
  counts(project?: string): Record<string, number>;
  close(): Promise<void>;
}
