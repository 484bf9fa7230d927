/**
 * A sandbox as callers of the control plane see it: an id, a spec, files and, while it is active, processes.
 *
 * *Terms.* A `ref` is the id of a sandbox, or its name in the principal's project. To *enter* a sandbox is to
 * use its guest. *Use* is what keeps a sandbox from being idle: a call of its guest, a client that waits for
 * something inside, a visitor of a preview. A port is *exposed* when previews may reach it.
 *
 * *Who calls.* The REST API, the E2B API and template builds, once for each request.
 *
 * *Concurrency.* The changes of one sandbox run one after the other, in its queue (`operations.ts`). Changes
 * of different sandboxes run side by side. A paused sandbox wakes for `enter`, `preview` and every verb that
 * needs its processes; the caller waits.
 *
 * *Errors.* `not_found` for a sandbox of another project, `failed_precondition` for a state that does not
 * allow the verb, `resource_exhausted` for a quota or a machine that is full.
 *
 * *Cost.* `get`, `list` and `lookup` read the records. A change is two or three transactions and one verb of
 * the backend. `enter` of an active sandbox reads one record.
 *
 *     const request = CreateSandboxSchema.parse({ name: 'box', template: 'base' });
 *     const { sandbox, created } = await control.create(me, request);
 *     const { guest } = await control.enter(me, 'box');
 *     await guest.files('user').write('/home/user/a', Buffer.from('one'));
 *     await control.update(me, 'box', { labels: { task: '7' } });
 *     await control.stop(me, 'box');                           // keeps its files
 *     await control.start(me, 'box');
 *     await control.remove(me, 'box');
 */
import type {
  CreateSandbox,
  ListSandboxes,
  Sandbox,
  SandboxId,
  SandboxPage,
  Stats,
  UpdateSandbox,
  Validation,
} from '@cay/sdk/protocol';
import type { CallScope } from '../../backends/backend.ts';
import type { Files, Guest } from '../../guest/guest.ts';
import type { PortRecord, SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Keyed } from '../tenants/idempotency.ts';
import type { Principal } from '../tenants/principal.ts';

export interface CreateOptions extends Keyed {
  /**
   * For a create from a snapshot: use the request's user and workdir even when they equal the defaults.
   * Normally a default means that the snapshot's own user and workdir are kept.
   */
  exactly?: boolean;
  /** Without the own command that a snapshot has. */
  withoutCommand?: boolean;
}

/**
 * A sandbox as callers that are inside it see it. `spec` has the environment, which may hold secrets and is
 * not part of `Sandbox`.
 */
export type EnteredSandbox = Readonly<
  Pick<SandboxRow, 'id' | 'project' | 'state' | 'labels' | 'ports' | 'incarnation' | 'spec'>
>;

export interface SandboxVerbs {
  /** With `getOrCreate`, or a known idempotency key, resolves the sandbox that exists (`created: false`). */
  create(
    principal: Principal,
    request: CreateSandbox,
    options?: CreateOptions,
  ): Promise<{ sandbox: Sandbox; created: boolean }>;
  /**
   * What a create would do: the platform that it would choose, everything it would refuse, and everything
   * that would have no effect there. Makes nothing.
   */
  validate(principal: Principal, request: CreateSandbox): Promise<Validation>;
  get(principal: Principal, ref: string): Promise<Sandbox>;
  /** Those of the caller's project; with `allProjects` of every one, which only an admin may ask for. */
  list(principal: Principal, query: ListSandboxes, options?: { allProjects?: boolean }): Promise<SandboxPage>;
  update(principal: Principal, ref: string, changes: UpdateSandbox): Promise<Sandbox>;
  start(principal: Principal, ref: string): Promise<Sandbox>;
  stop(principal: Principal, ref: string, options?: { graceMs?: number; force?: boolean }): Promise<Sandbox>;
  /**
   * Succeeds if the sandbox does not exist. Waits for a snapshot, fork, pause or rollback that is under way.
   * Snapshots with a name and those that a caller asked for stay; turns are removed too. `onIntent` is called
   * once the record says `destroying`: from then on the removal happens even if the server is killed.
   */
  remove(principal: Principal, ref: string, options?: { onIntent?(): void; force?: boolean }): Promise<void>;
  /**
   * The guest of an active sandbox, and its record. Every call of that guest counts as use, and wakes the
   * sandbox if it was paused meanwhile. Rejects `failed_precondition` if the sandbox is stopped or has
   * failed.
   */
  enter(principal: Principal, ref: string): Promise<{ guest: Guest; row: EnteredSandbox }>;
  /** Counts a client that waits for something inside, until the result is disposed of. Wakes nothing. */
  attend(principal: Principal, ref: string): Promise<Disposable>;
  /**
   * Files of a running sandbox as one of its users; default its own user. Every change is an audit event.
   * Wakes a paused sandbox, and rejects as `enter` does.
   */
  files(
    principal: Principal,
    ref: string,
    user?: string,
  ): Promise<{ files: Files; row: EnteredSandbox; user: string }>;
  /** What a sandbox uses now. */
  stats(principal: Principal, ref: string, options?: CallScope): Promise<Stats>;
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
  lookup(id: SandboxId): Promise<EnteredSandbox | undefined>;
  /** All projects' sandboxes, newest first. */
  ids(query?: { state?: SandboxRow['state'] }): Promise<{ id: SandboxId; project: string }[]>;
  expose(principal: Principal, ref: string, port: PortRecord): Promise<Sandbox>;
  unexpose(principal: Principal, ref: string, port: number): Promise<Sandbox>;
  /** For preview traffic, which has no key: the guest, if the port is exposed and the token is valid. */
  preview(id: SandboxId, port: number, token: string | undefined): Promise<Guest>;
  /**
   * Counts one connection of a visitor until it is disposed of. Rejects `resource_exhausted` beyond the
   * project's quota.
   */
  previewConnection(id: SandboxId): Promise<Disposable>;
}
