/**
 * The control plane: who may, which sandbox, until when.
 *
 * It owns ids, names, records, quotas and expiry, and has a backend make real what is recorded.
 * Every change goes through one queue per sandbox: the intent is recorded (`creating`,
 * `destroying`), then the deed is done, then the result is recorded. Each deed can be repeated, so
 * a server that was killed between any two lines finishes what it finds when it opens again.
 *
 * A principal sees its own project only; what belongs to others does not exist for it.
 */
import {
  CayError,
  LimitsSchema,
  newId,
  type Ability,
  type CreateSandbox,
  type Limits,
  type ListSandboxes,
  type Sandbox,
  type SandboxId,
  type SandboxPage,
  type SandboxSpec,
  type UpdateSandbox,
} from '@cay/sdk/protocol';
import { canResize, type Backend, type Observation } from '../backends/backend.ts';
import type { Guest } from '../guest/guest.ts';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import { startExpiry, type Expiry } from './expiry.ts';
import { idempotency } from './idempotency.ts';
import { formatCursor, parseCursor, parseLabels } from './listing.ts';
import type { PreviewTokens } from './preview-tokens.ts';
import type { Principal } from './principal.ts';
import { requireQuota } from './quota.ts';
import type { Database } from './records/database.ts';
import type { EventLog } from './records/events.ts';
import type { ProjectRecords } from './records/projects.ts';
import type { PortRecord, SandboxRecords, SandboxRow } from './records/sandboxes.ts';
import { showSandbox } from './show-sandbox.ts';
import { requireTransition } from './transitions.ts';

export interface ControlOptions {
  backend: Backend;
  database: Database;
  sandboxes: SandboxRecords;
  projects: ProjectRecords;
  events: EventLog;
  previews: PreviewTokens;
  /** Where a sandbox's port is reached, as the API shows it. */
  previewUrl(id: SandboxId, port: number): string;
  now?(): number;
  onError?(error: unknown): void;
}

export interface Control {
  readonly backend: Backend;
  readonly events: EventLog;
  create(
    principal: Principal,
    request: CreateSandbox,
    options?: { idempotencyKey?: string },
  ): Promise<{ sandbox: Sandbox; created: boolean }>;
  /** By id, or by the name that its project gave it. Rejects `not_found`. */
  get(principal: Principal, ref: string): Sandbox;
  list(principal: Principal, query: ListSandboxes): SandboxPage;
  update(principal: Principal, ref: string, changes: UpdateSandbox): Promise<Sandbox>;
  start(principal: Principal, ref: string): Promise<Sandbox>;
  stop(principal: Principal, ref: string, options?: { graceMs?: number }): Promise<Sandbox>;
  /** Absent is done. */
  remove(principal: Principal, ref: string): Promise<void>;
  /** The guest of an active sandbox, and what commands and files start from. Rejects `failed_precondition`. */
  enter(principal: Principal, ref: string): Promise<{ guest: Guest; row: SandboxRow }>;
  expose(principal: Principal, ref: string, port: PortRecord): Promise<Sandbox>;
  unexpose(principal: Principal, ref: string, port: number): Promise<Sandbox>;
  /** For preview traffic, which carries no key: the guest, if that port is exposed and the token fits. */
  preview(id: SandboxId, port: number, token: string | undefined): Promise<Guest>;
  counts(): Record<string, number>;
  close(): Promise<void>;
}

const ABILITY_OF_LIMIT = {
  cpus: 'cpuLimit',
  memoryBytes: 'memoryLimit',
  diskBytes: 'diskLimit',
  pids: 'pidsLimit',
} as const satisfies Partial<Record<keyof Limits, Ability>>;

const MAX_PORTS = 64;

export async function openControl(options: ControlOptions): Promise<Control> {
  const { backend, database, sandboxes, projects, events, previews } = options;
  const now = options.now ?? Date.now;
  const onError = options.onError ?? (() => {});
  const queue = new KeyedQueue<string>();
  const creating = new Map<string, Promise<Sandbox>>();
  const closing = new AbortController();
  const keyed = idempotency(database);
  const capabilities = await backend.capabilities();

  const show = (row: SandboxRow): Sandbox => showSandbox(row, previews, options.previewUrl);

  function find(principal: Principal, ref: string): SandboxRow {
    const row = ref.startsWith('sbx_') ? sandboxes.get(ref) : sandboxes.byName(principal.project, ref);
    if (row?.project === principal.project) return row;
    throw new CayError('not_found', `Sandbox "${ref.slice(0, 80)}" does not exist`);
  }

  /** Like `find`, for what happens after waiting in the queue: it may be gone by then. */
  function again(row: SandboxRow): SandboxRow {
    const current = sandboxes.get(row.id);
    if (!current) throw new CayError('not_found', `Sandbox "${row.id}" does not exist`);
    return current;
  }

  function note(type: string, row: SandboxRow, principal: Principal | undefined, data: Record<string, unknown> = {}): void {
    events.append({ type, project: row.project, sandbox: row.id, key: principal?.key ?? null, data });
  }

  /** A limit that nobody asked for is dropped where the backend has none; one that was asked for is refused there. */
  function limitsFor(asked: Partial<Limits>): Limits {
    const limits = LimitsSchema.parse({});
    for (const key of Object.keys(ABILITY_OF_LIMIT) as (keyof typeof ABILITY_OF_LIMIT)[]) {
      if (!capabilities.abilities[ABILITY_OF_LIMIT[key]]) limits[key] = null;
    }
    return { ...limits, ...asked };
  }

  function expiryOf(row: Pick<SandboxRow, 'timeoutMs'>): number | null {
    return row.timeoutMs === null ? null : now() + row.timeoutMs;
  }

  /** Makes a recorded sandbox run, and records that it does. */
  async function activate(row: SandboxRow): Promise<SandboxRow> {
    const observed = await backend.ensure(row.id, row.spec);
    const active = sandboxes.update(row.id, {
      state: 'active',
      reason: null,
      message: null,
      runtime: observed.runtime ?? null,
      incarnation: observed.incarnation,
      startedAtMs: now(),
      expiresAtMs: expiryOf(row),
    });
    expiry.changed();
    return active;
  }

  async function destroy(row: SandboxRow, principal: Principal | undefined, cause: string): Promise<void> {
    sandboxes.update(row.id, { state: 'destroying', expiresAtMs: null });
    await backend.remove(row.id);
    sandboxes.delete(row.id);
    note('sandbox.removed', row, principal, { cause });
  }

  async function stop(row: SandboxRow, principal: Principal | undefined, cause: string, graceMs?: number): Promise<SandboxRow> {
    if (row.state === 'stopped') return row;
    requireTransition(row.id, row.state, 'stopped');
    await backend.stop(row.id, graceMs === undefined ? {} : { graceMs });
    const stopped = sandboxes.update(row.id, { state: 'stopped', reason: null, message: null, runtime: null, expiresAtMs: null });
    note('sandbox.stopped', stopped, principal, { cause });
    return stopped;
  }

  async function expire(row: SandboxRow): Promise<void> {
    await queue.run(row.id, async () => {
      const current = sandboxes.get(row.id);
      if (!current || current.expiresAtMs === null || current.expiresAtMs > now()) return;
      if (current.onTimeout === 'destroy') await destroy(current, undefined, 'timeout');
      else await stop(current, undefined, 'timeout');
    });
  }

  const expiry: Expiry = startExpiry({ next: () => sandboxes.nextExpiry(), due: () => sandboxes.expired(now()), expire, now, onError });

  /** What the backend saw happen by itself. */
  async function followBackend(changes: AsyncIterable<Observation>): Promise<void> {
    for await (const observed of changes) {
      if (observed.phase === 'ready' || observed.phase === 'starting') continue;
      await queue
        .run(observed.id, async () => {
          const row = sandboxes.get(observed.id);
          if (row?.state !== 'active') return;
          const current = await backend.observe(observed.id);
          if (current.phase === 'failed' || current.phase === 'absent') fail(row, current);
        })
        .catch(onError);
    }
  }

  /** Records what the backend has, where that differs: a start or stop was cut short, or a sandbox ended by itself. */
  function settle(row: SandboxRow, observed: Observation): void {
    const running = observed.phase === 'ready' || observed.phase === 'starting';
    if (row.state === 'active' && observed.phase === 'stopped') {
      const stopped = sandboxes.update(row.id, { state: 'stopped', runtime: null, expiresAtMs: null });
      note('sandbox.stopped', stopped, undefined, { cause: 'backend' });
    } else if (row.state === 'active' && !running) fail(row, observed);
    else if (row.state !== 'active' && running) {
      queue.run(row.id, async () => note('sandbox.started', await activate(row), undefined)).catch(onError);
    }
  }

  function fail(row: SandboxRow, observed: Observation): void {
    const absent = observed.phase === 'absent';
    const failed = sandboxes.update(row.id, {
      state: 'failed',
      reason: observed.reason ?? (absent ? 'removed_outside' : 'crashed'),
      message: observed.message ?? (absent ? 'The sandbox is gone from its backend' : null),
      runtime: null,
      expiresAtMs: null,
    });
    note('sandbox.failed', failed, undefined, { reason: failed.reason });
  }

  function specOf(request: CreateSandbox): SandboxSpec {
    const { name: _name, getOrCreate: _get, labels: _labels, limits, timeoutMs: _timeout, onTimeout: _on, ports: _ports, ...rest } = request;
    return { ...rest, limits: limitsFor(limits) };
  }

  function insert(principal: Principal, request: CreateSandbox, idempotencyKey: string | undefined): SandboxRow {
    const { name, labels, timeoutMs, onTimeout, ports } = request;
    const spec = specOf(request);
    const row: SandboxRow = {
      id: newId('sbx'),
      project: principal.project,
      name: name ?? null,
      state: 'creating',
      reason: null,
      message: null,
      backend: backend.name,
      runtime: null,
      spec,
      labels,
      ports: ports.map((port) => (typeof port === 'number' ? { port, visibility: 'private' } : port)),
      timeoutMs,
      onTimeout,
      expiresAtMs: null,
      incarnation: 0,
      createdAtMs: now(),
      startedAtMs: null,
    };
    database.transaction(() => {
      const project = projects.get(principal.project);
      if (!project) throw new CayError('permission_denied', `Project "${principal.project}" does not exist any more`);
      requireQuota(project.quota, sandboxes.usage(project.id), { sandboxes: 1, limits: spec.limits });
      sandboxes.insert(row);
      if (idempotencyKey !== undefined) keyed.remember(project.id, idempotencyKey, request, row.id, row.createdAtMs);
    });
    return row;
  }

  /** Runs the deed behind a row in state `creating`. When it fails the row goes away again. */
  function make(row: SandboxRow, principal: Principal | undefined): Promise<Sandbox> {
    const made = queue.run(row.id, async () => {
      try {
        const active = await activate(row);
        note('sandbox.created', active, principal, { template: row.spec.template, runtime: active.runtime });
        return show(active);
      } catch (error) {
        await backend.remove(row.id).catch(onError);
        database.transaction(() => {
          sandboxes.delete(row.id);
          keyed.forget(row.id);
        });
        throw error;
      } finally {
        creating.delete(row.id);
      }
    });
    creating.set(row.id, made);
    return made;
  }

  /** The sandbox that a create call means and that is there already, by its idempotency key or by name. */
  function existing(principal: Principal, request: CreateSandbox, idempotencyKey: string | undefined): Promise<Sandbox> | undefined {
    const id = idempotencyKey === undefined ? undefined : keyed.find(principal.project, idempotencyKey, request);
    if (id !== undefined) {
      const row = sandboxes.get(id);
      if (row) return creating.get(id) ?? Promise.resolve(show(row));
      throw new CayError('not_found', `The sandbox "${id}" made with idempotency key "${idempotencyKey}" does not exist any more`, {
        hint: 'use a new key to make another',
      });
    }
    if (!request.getOrCreate || request.name === undefined) return undefined;
    const row = sandboxes.byName(principal.project, request.name);
    if (!row || row.state === 'destroying') return undefined;
    const made = creating.get(row.id);
    return made ?? (row.state === 'active' ? Promise.resolve(show(row)) : control.start(principal, row.id));
  }

  const control: Control = {
    backend,
    events,

    async create(principal, request, { idempotencyKey } = {}) {
      if (request.getOrCreate && request.name === undefined) throw new CayError('invalid_argument', '"getOrCreate" needs a "name"');
      const before = existing(principal, request, idempotencyKey);
      if (before) return { sandbox: await before, created: false };
      await backend.validate(specOf(request));
      // Another call may have come first meanwhile; from here to the insert nothing can come between.
      const meanwhile = existing(principal, request, idempotencyKey);
      if (meanwhile) return { sandbox: await meanwhile, created: false };
      return { sandbox: await make(insert(principal, request, idempotencyKey), principal), created: true };
    },

    get: (principal, ref) => show(find(principal, ref)),

    list(principal, query) {
      const labels = parseLabels(query.label);
      const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
      const rows = sandboxes.list({ project: principal.project, state: query.state, labels, after, limit: query.limit + 1 });
      const page = rows.slice(0, query.limit);
      const last = rows.length > query.limit ? page.at(-1) : undefined;
      return { sandboxes: page.map(show), nextCursor: last ? formatCursor(last) : null };
    },

    async update(principal, ref, changes) {
      const { id } = find(principal, ref);
      return queue.run(id, async () => {
        const row = again(find(principal, id));
        if (changes.limits) await resize(row, changes.limits);
        const updated = sandboxes.update(id, {
          labels: changes.labels,
          onTimeout: changes.onTimeout,
          ...(changes.limits && { spec: { ...row.spec, limits: { ...row.spec.limits, ...changes.limits } } }),
          ...(changes.timeoutMs !== undefined && {
            timeoutMs: changes.timeoutMs,
            expiresAtMs: row.state === 'active' ? expiryOf({ timeoutMs: changes.timeoutMs }) : null,
          }),
        });
        expiry.changed();
        note('sandbox.updated', updated, principal, { fields: Object.keys(changes) });
        return show(updated);
      });
    },

    async start(principal, ref) {
      const found = find(principal, ref);
      return queue.run(found.id, async () => {
        const row = again(found);
        if (row.state === 'active') return show(row);
        if (row.state !== 'stopped' && row.state !== 'failed') {
          throw new CayError('failed_precondition', `Sandbox "${row.id}" is ${row.state} and cannot be started`, {
            details: { state: row.state },
          });
        }
        const project = projects.get(row.project);
        const { cpus, memoryBytes } = row.spec.limits;
        // Its disk and its number are counted already.
        if (project)
          requireQuota(project.quota, sandboxes.usage(row.project), { sandboxes: 0, limits: { cpus, memoryBytes, diskBytes: 0 } });
        const active = await activate(row);
        note('sandbox.started', active, principal);
        return show(active);
      });
    },

    async stop(principal, ref, { graceMs } = {}) {
      const found = find(principal, ref);
      return queue.run(found.id, async () => show(await stop(again(found), principal, 'request', graceMs)));
    },

    async remove(principal, ref) {
      let found: SandboxRow;
      try {
        found = find(principal, ref);
      } catch (error) {
        if (error instanceof CayError && error.code === 'not_found') return;
        throw error;
      }
      await queue.run(found.id, async () => {
        const row = sandboxes.get(found.id);
        if (row) await destroy(row, principal, 'request');
      });
    },

    async enter(principal, ref) {
      const row = find(principal, ref);
      const made = row.state === 'creating' ? creating.get(row.id) : undefined;
      const current = made ? again({ ...row, id: (await made).id }) : row;
      if (current.state !== 'active') {
        throw new CayError(
          'failed_precondition',
          `Sandbox "${row.id}" is ${current.state}${current.message ? `: ${current.message}` : ''}`,
          {
            details: { state: current.state, ...(current.reason && { reason: current.reason }) },
            hint: current.state === 'destroying' ? undefined : 'start it first',
          },
        );
      }
      return { guest: await backend.connect(row.id), row: current };
    },

    async expose(principal, ref, port) {
      const row = find(principal, ref);
      const others = row.ports.filter((other) => other.port !== port.port);
      if (others.length >= MAX_PORTS) throw new CayError('resource_exhausted', `Sandbox "${row.id}" exposes ${MAX_PORTS} ports already`);
      const updated = sandboxes.update(row.id, { ports: [...others, port] });
      note('port.exposed', updated, principal, { ...port });
      return show(updated);
    },

    async unexpose(principal, ref, port) {
      const row = find(principal, ref);
      const updated = sandboxes.update(row.id, { ports: row.ports.filter((other) => other.port !== port) });
      note('port.hidden', updated, principal, { port });
      return show(updated);
    },

    async preview(id, port, token) {
      const row = sandboxes.get(id);
      const exposed = row?.ports.find((candidate) => candidate.port === port);
      // One answer for all that is hidden: it tells a stranger nothing.
      const hidden = () => new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
      if (!row || !exposed) throw hidden();
      if (exposed.visibility === 'private' && !(token !== undefined && previews.matches(id, port, token))) throw hidden();
      if (row.state !== 'active') throw new CayError('unavailable', 'The sandbox behind this preview is not running');
      return backend.connect(id);
    },

    counts() {
      const counts: Record<string, number> = {};
      for (const row of sandboxes.list({})) counts[row.state] = (counts[row.state] ?? 0) + 1;
      return counts;
    },

    async close() {
      closing.abort();
      expiry.stop();
      await Promise.allSettled(creating.values());
      await backend.close();
      events.close();
      database.close();
    },
  };

  async function resize(row: SandboxRow, limits: NonNullable<UpdateSandbox['limits']>): Promise<void> {
    if (row.state !== 'active')
      throw new CayError('failed_precondition', `Sandbox "${row.id}" is ${row.state}; limits change while it is active`);
    if (!canResize(backend)) throw new CayError('unsupported', `The ${backend.name} backend cannot change limits`);
    const project = projects.get(row.project);
    const own = row.spec.limits;
    const usage = sandboxes.usage(row.project);
    const without = {
      sandboxes: usage.sandboxes,
      cpus: usage.cpus - (own.cpus ?? 0),
      memoryBytes: usage.memoryBytes - (own.memoryBytes ?? 0),
      diskBytes: usage.diskBytes - (own.diskBytes ?? 0),
    };
    if (project) requireQuota(project.quota, without, { sandboxes: 0, limits: { ...own, ...limits } });
    await backend.resize(row.id, limits);
  }

  /** Brings records and backend together after a start: finishes, notes, or takes away. */
  async function recover(): Promise<void> {
    const known = new Map((await backend.list()).map((observed) => [observed.id, observed]));
    for (const row of sandboxes.list({})) {
      const observed = known.get(row.id) ?? { id: row.id, phase: 'absent', incarnation: 0 };
      known.delete(row.id);
      if (row.state === 'creating') make(row, undefined).catch(onError);
      else if (row.state === 'destroying') queue.run(row.id, () => destroy(row, undefined, 'recovery')).catch(onError);
      else settle(row, observed);
    }
    // What no record knows was never acknowledged to anybody.
    for (const id of known.keys()) await backend.remove(id).catch(onError);
  }

  const changes = backend.watch({ signal: closing.signal });
  await recover();
  followBackend(changes).catch(onError);
  expiry.changed();
  return control;
}
