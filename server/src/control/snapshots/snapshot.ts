/**
 * A snapshot is a sandbox at one moment: its files and, with memory, its processes. Its parent is the
 * snapshot that its sandbox last took, went back to or came from, so the snapshots of a sandbox and of its
 * forks form one tree. A *turn* is a snapshot with a number, taken between two steps of an agent.
 *
 * A snapshot is named by its id, or by its name or turn number together with its sandbox.
 *
 * *Who calls.* The REST API and the E2B API, once for each request; template builds, for each step.
 *
 * *Concurrency.* Verbs that only read the sandbox (`snapshot`, `turn`, `fork`, `compare`) go together. A
 * rollback excludes them and every other change: the later call is rejected with `conflict`, because its
 * caller decided by a state that no longer exists.
 *
 * *Errors.* `unsupported` where the backend or the runtime cannot take snapshots or keep memory,
 * `resource_exhausted` for the project's quota, `failed_precondition` while something still needs a snapshot.
 *
 * *Cost.* That of the backend's `Snapshotting`, and two or three transactions. A snapshot that is in the
 * archive store is fetched first.
 *
 *     const first = await control.turn(me, 'box', {});                        // number 1
 *     await work();
 *     const { changes, release } = await control.compare(me, 'box', { from: 1, to: 'now' });
 *     for await (const { change, path } of changes) show(change, path);
 *     await release();
 *     const { sandboxes } = await control.fork(me, 'box', { count: 3, memory: true });
 *     await control.rollback(me, 'box', { to: 1 });                           // keeps what was before
 *     await control.removeSnapshot(me, first.id);
 */
import type {
  Compare,
  FileChange,
  Fork,
  Forked,
  ImportSnapshot,
  ImportedSnapshot,
  ListSnapshots,
  Rollback,
  RolledBack,
  SandboxId,
  Snapshot,
  SnapshotPage,
  SnapshotRef,
  SnapshotTree,
  TakeSnapshot,
  TakeTurn,
} from '@cay/sdk/protocol';
import type { CallScope, SnapshotFiles } from '../../backends/backend.ts';
import type { Keyed } from '../tenants/idempotency.ts';
import type { Principal } from '../tenants/principal.ts';

/** The sandbox that a name or a turn number refers to. An id needs none. */
export interface SnapshotScope {
  sandbox?: string;
}

export interface SnapshotVerbs {
  /** Rejects `already_exists` if the sandbox has another snapshot of that name. */
  snapshot(principal: Principal, ref: string, request: TakeSnapshot): Promise<Snapshot>;
  /** Waits for commands that a client waits for, then takes a snapshot with the next turn number. */
  turn(principal: Principal, ref: string, request: TakeTurn): Promise<Snapshot>;
  snapshots(principal: Principal, query: ListSnapshots): Promise<SnapshotPage>;
  getSnapshot(principal: Principal, snapshot: SnapshotRef, scope?: SnapshotScope): Promise<Snapshot>;
  /**
   * Its descendants become children of its parent. Rejects `failed_precondition` while a sandbox is archived
   * in it or a template is made of it.
   */
  removeSnapshot(principal: Principal, snapshot: SnapshotRef, scope?: SnapshotScope): Promise<void>;
  /** One portable archive. */
  exportSnapshot(
    principal: Principal,
    snapshot: SnapshotRef,
    scope?: SnapshotScope & CallScope,
  ): Promise<{ snapshot: Snapshot; data: AsyncIterable<Uint8Array> }>;
  /**
   * Imports an archive, whole or not at all. Memory that this installation has not signed is left out unless
   * an admin allows it. Rejects `invalid_argument` for a damaged archive.
   */
  importSnapshot(
    principal: Principal,
    data: AsyncIterable<Uint8Array>,
    request: ImportSnapshot,
    options?: CallScope,
  ): Promise<ImportedSnapshot>;
  tree(principal: Principal, ref: string): Promise<SnapshotTree>;
}

/** Two moments of a sandbox side by side, until `release` is called. */
export interface Comparison {
  /** Null means now. */
  from: Snapshot | null;
  to: Snapshot | null;
  /** Ordered by path. Can be read once. */
  changes: AsyncIterable<FileChange>;
  before: SnapshotFiles;
  after: SnapshotFiles;
  /** Removes the temporary snapshot of now. */
  release(): Promise<void>;
}

export interface TravelVerbs {
  /**
   * Puts the sandbox back to a snapshot. What it was before becomes a snapshot too (`kept`). When this
   * rejects, the sandbox is as it was.
   */
  rollback(
    principal: Principal,
    ref: string,
    request: Rollback,
    /** `check` may refuse it by a throw, before it is claimed. */
    options?: { check?(id: SandboxId): void },
  ): Promise<RolledBack>;
  /**
   * Makes sandboxes that go on from this one: all of them or none. Children of a stopped sandbox are stopped.
   */
  fork(principal: Principal, ref: string, request: Fork, options?: Keyed): Promise<Forked>;
  compare(principal: Principal, ref: string, request: Compare, options?: CallScope): Promise<Comparison>;
}
