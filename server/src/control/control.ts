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
import { canResize, type Backend } from '../backends/backend.ts';
import type { Guest } from '../guest/guest.ts';
import { commandKeys, type CommandKeys } from './command-keys.ts';
import { idempotency } from './idempotency.ts';
import { openLifecycle } from './lifecycle.ts';
import { formatCursor, parseCursor, parseLabels } from './listing.ts';
import type { PreviewTokens } from './preview-tokens.ts';
import type { Principal } from './principal.ts';
import { requireQuota } from './quota.ts';
import type { Database } from './records/database.ts';
import type { EventLog } from './records/events.ts';
import type { ProjectRecords } from './records/projects.ts';
import type { PortRecord, SandboxRecords, SandboxRow, Usage } from './records/sandboxes.ts';
import { showSandbox } from './show-sandbox.ts';

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
  /** Callers' keys for commands that are to run once. */
  readonly commandKeys: CommandKeys;
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
  const closing = new AbortController();
  const reserved = new Set<{ project: string; limits: Pick<Limits, 'cpus' | 'memoryBytes' | 'diskBytes'> }>();
  const keyed = idempotency(database, now);
  const capabilities = await backend.capabilities();
  const lifecycle = openLifecycle({ backend, database, sandboxes, idempotency: keyed, note, now, onError });
  const { queue } = lifecycle;

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

  /** What a project's sandboxes take, with what others of its requests are about to take. */
  function usageOf(project: string): Usage {
    const usage = sandboxes.usage(project);
    for (const one of reserved) {
      if (one.project !== project) continue;
      for (const key of ['cpus', 'memoryBytes', 'diskBytes'] as const) usage[key] += one.limits[key] ?? 0;
    }
    return usage;
  }

  /** Counts what a deed takes from before it begins; once it is done the records do. */
  async function reserving<T>(
    row: SandboxRow,
    limits: Pick<Limits, 'cpus' | 'memoryBytes' | 'diskBytes'>,
    deed: () => Promise<T>,
  ): Promise<T> {
    const reservation = { project: row.project, limits };
    reserved.add(reservation);
    try {
      return await deed();
    } finally {
      reserved.delete(reservation);
    }
  }

  /** A limit that nobody asked for is dropped where the backend has none; one that was asked for is refused there. */
  function limitsFor(asked: Partial<Limits>): Limits {
    const limits = LimitsSchema.parse({});
    for (const key of Object.keys(ABILITY_OF_LIMIT) as (keyof typeof ABILITY_OF_LIMIT)[]) {
      if (!capabilities.abilities[ABILITY_OF_LIMIT[key]]) limits[key] = null;
    }
    return { ...limits, ...asked };
  }

  function specOf(request: CreateSandbox): SandboxSpec {
    const {
      name: _name,
      getOrCreate: _get,
      labels: _labels,
      limits,
      timeoutMs: _timeout,
      onTimeout: _on,
      ports: _ports,
      ...rest
    } = request;
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
      requireQuota(project.quota, usageOf(project.id), { sandboxes: 1, limits: spec.limits });
      sandboxes.insert(row);
      if (idempotencyKey !== undefined) keyed.remember(project.id, idempotencyKey, request, row.id, row.createdAtMs);
    });
    return row;
  }

  /** The sandbox that a create call means and that is there already, by its idempotency key or by name. */
  function existing(principal: Principal, request: CreateSandbox, idempotencyKey: string | undefined): Promise<Sandbox> | undefined {
    const id = idempotencyKey === undefined ? undefined : keyed.find(principal.project, idempotencyKey, request);
    if (id !== undefined) {
      const row = sandboxes.get(id);
      if (row) return Promise.resolve(lifecycle.making(row.id) ?? row).then(show);
      throw new CayError('not_found', `The sandbox "${id}" made with idempotency key "${idempotencyKey}" does not exist any more`, {
        hint: 'use a new key to make another',
      });
    }
    if (!request.getOrCreate || request.name === undefined) return undefined;
    const row = sandboxes.byName(principal.project, request.name);
    if (!row || row.state === 'destroying') return undefined;
    const made = lifecycle.making(row.id);
    if (made) return made.then(show);
    return row.state === 'active' ? Promise.resolve(show(row)) : control.start(principal, row.id);
  }

  const control: Control = {
    backend,
    events,
    commandKeys: commandKeys(database, now),

    async create(principal, request, { idempotencyKey } = {}) {
      if (request.getOrCreate && request.name === undefined) throw new CayError('invalid_argument', '"getOrCreate" needs a "name"');
      const before = existing(principal, request, idempotencyKey);
      if (before) return { sandbox: await before, created: false };
      await backend.validate(specOf(request));
      // Another call may have come first meanwhile; from here to the insert nothing can come between.
      const meanwhile = existing(principal, request, idempotencyKey);
      if (meanwhile) return { sandbox: await meanwhile, created: false };
      return { sandbox: show(await lifecycle.make(insert(principal, request, idempotencyKey), principal)), created: true };
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
            expiresAtMs: row.state === 'active' ? lifecycle.expiryOf({ timeoutMs: changes.timeoutMs }) : null,
          }),
        });
        lifecycle.expiry.changed();
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
        const limits = { cpus, memoryBytes, diskBytes: 0 };
        if (project) requireQuota(project.quota, usageOf(row.project), { sandboxes: 0, limits });
        const active = await reserving(row, limits, () => lifecycle.activate(row));
        note('sandbox.started', active, principal);
        return show(active);
      });
    },

    async stop(principal, ref, { graceMs } = {}) {
      const found = find(principal, ref);
      return queue.run(found.id, async () => show(await lifecycle.stop(again(found), principal, { cause: 'request', graceMs })));
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
        if (row) await lifecycle.destroy(row, principal, 'request');
      });
    },

    async enter(principal, ref) {
      const row = find(principal, ref);
      let current = row;
      if (row.state === 'creating') {
        await lifecycle.making(row.id);
        current = again(row);
      }
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
      await lifecycle.close();
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
    const usage = usageOf(row.project);
    const without = {
      sandboxes: usage.sandboxes,
      cpus: usage.cpus - (own.cpus ?? 0),
      memoryBytes: usage.memoryBytes - (own.memoryBytes ?? 0),
      diskBytes: usage.diskBytes - (own.diskBytes ?? 0),
    };
    if (project) requireQuota(project.quota, without, { sandboxes: 0, limits: { ...own, ...limits } });
    const more = (key: 'cpus' | 'memoryBytes' | 'diskBytes') => Math.max(0, (limits[key] ?? own[key] ?? 0) - (own[key] ?? 0));
    const added = { cpus: more('cpus'), memoryBytes: more('memoryBytes'), diskBytes: more('diskBytes') };
    const resizing = backend;
    await reserving(row, added, () => resizing.resize(row.id, limits));
  }

  const changes = backend.watch({ signal: closing.signal });
  await lifecycle.recover();
  lifecycle.follow(changes).catch(onError);
  lifecycle.expiry.changed();
  return control;
}
