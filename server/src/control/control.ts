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
  Capabilities,
  Compare,
  CreateSandbox,
  FileChange,
  Fork,
  Forked,
  Health,
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
  Stats,
  TakeSnapshot,
  TakeTurn,
  Template,
  UpdateSandbox,
  Validation,
} from '@cay/sdk/protocol';
import type { CallOptions, Orphan, SnapshotFiles } from '../backends/backend.ts';
import type { Files, Guest } from '../guest/guest.ts';
import type { Policy } from '../policy/policy.ts';
import type { PortRecord, SandboxRow } from '../records/sandboxes.ts';
import type { ControlMetrics } from './capacity/control-metrics.ts';
import type { CommandVerbs } from './commands/command.ts';
import type { EventVerbs } from './events/event-verbs.ts';
import type { WebhookVerbs } from './events/webhooks/webhook-verbs.ts';
import type { Builds } from './templates/builds/build.ts';
import type { KeyVerbs } from './tenants/key-verbs.ts';
import type { Principal } from './tenants/principal.ts';
import type { ProjectVerbs } from './tenants/project-verbs.ts';
import type { TokenEpochs } from './tenants/token-epochs.ts';

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

/**
 * A sandbox as callers that are inside it see it. `spec` has the environment, which may hold secrets and is
 * not part of `Sandbox`.
 */
export type EnteredSandbox = Readonly<
  Pick<SandboxRow, 'id' | 'project' | 'state' | 'labels' | 'ports' | 'incarnation' | 'spec'>
>;

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
  /** Those of the caller's project; with `allProjects` of every one, which only an admin may ask for. */
  list(principal: Principal, query: ListSandboxes, options?: { allProjects?: boolean }): SandboxPage;
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
  enter(principal: Principal, ref: string): Promise<{ guest: Guest; row: EnteredSandbox }>;
  /**
   * Files of a running sandbox as one of its users; default its own user. Every change is an audit event.
   * Wakes a paused sandbox, and rejects as `enter` does.
   */
  files(
    principal: Principal,
    ref: string,
    user?: string,
  ): Promise<{ files: Files; row: EnteredSandbox; user: string }>;
  /**
   * Counts somebody who waits for something inside as one of its clients, until that is disposed of. Wakes
   * nothing.
   */
  attend(principal: Principal, ref: string): Disposable;
  /** What a sandbox uses now. */
  stats(principal: Principal, ref: string, options?: CallOptions): Promise<Stats>;
  /** A first reading at once, then one at every interval. Rejects before the first as `stats` does. */
  samples(
    principal: Principal,
    ref: string,
    options: { intervalMs: number; signal?: AbortSignal | undefined },
  ): Promise<AsyncIterable<Stats>>;
  /**
   * A sandbox by its id, for requests that carry no API key: previews, and E2B's clients with a token of the
   * sandbox. The caller checks the token, and then acts as `tokenPrincipal`.
   */
  lookup(id: SandboxId): EnteredSandbox | undefined;
  /** Ids of all projects' sandboxes, newest first. */
  ids(query?: { state?: SandboxRow['state'] }): SandboxId[];
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
    scope?: SnapshotScope & CallOptions,
  ): Promise<{ snapshot: Snapshot; data: AsyncIterable<Uint8Array> }>;
  /**
   * Takes an archive in, whole or not at all. Memory that this installation has not signed is left out,
   * unless an admin allows it. Rejects `invalid_argument` for one that is damaged.
   */
  importSnapshot(
    principal: Principal,
    data: AsyncIterable<Uint8Array>,
    request: ImportSnapshot,
    options?: CallOptions,
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
  compare(principal: Principal, ref: string, request: Compare, options?: CallOptions): Promise<Comparison>;
}

export interface PauseVerbs {
  /**
   * Waits up to `waitMs` for running commands to end, then pauses. New calls wait until the pause is decided,
   * and then wake the sandbox again. A paused sandbox goes to a deeper pause level, never to a lighter one.
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

/** What tokens of a sandbox are derived from, for surfaces that give out tokens of their own. */
export interface TokenSource {
  /** A secret of this installation. Each surface has its own. */
  secret(surface: 'e2b'): Uint8Array;
  readonly epochs: Pick<TokenEpochs, 'ofProject' | 'ofSandbox'>;
}

/** Verbs for those who run the server. */
export interface OperatorVerbs {
  /**
   * One verdict, and the findings it comes from. An admin also sees recent errors; others see the sandboxes of
   * their own project alone.
   */
  health(principal: Principal): Promise<Health>;
  /** Whether records and backend answer. */
  ready(): Promise<{ records: boolean; backend: boolean }>;
  metrics(): ControlMetrics;
  /** What sandboxes can do here, and what the operator allows. */
  capabilities(options?: CallOptions): Promise<Capabilities>;
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
  counts(project?: string): Record<string, number>;
}

export interface Control
  extends SandboxVerbs, SnapshotVerbs, TravelVerbs, PauseVerbs, TemplateVerbs, OperatorVerbs {
  readonly commands: CommandVerbs;
  readonly builds: Builds;
  readonly events: EventVerbs;
  readonly webhooks: WebhookVerbs;
  readonly keys: KeyVerbs;
  readonly projects: ProjectVerbs;
  readonly tokens: TokenSource;
  /** What callers may ask for. */
  readonly policy: Policy;
  close(): Promise<void>;
}
