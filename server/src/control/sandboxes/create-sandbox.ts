import { CayError, newId, type CreateSandbox, type Sandbox, type SandboxSpec } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import type { CreateOptions, SandboxVerbs } from './sandbox.ts';
import { withHint } from '../pausing/archive.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Planning } from './plan-sandbox.ts';
import type { Principal } from '../tenants/principal.ts';
import { recorded, type SandboxRow } from '../../records/sandboxes.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';

/** Makes a sandbox of a template or of a snapshot, once for each idempotency key or name that asks for it. */
export function createVerb(
  context: Context,
  registry: SnapshotRegistry,
  { start, idling, planning }: { start: SandboxVerbs['start']; idling: Idling; planning: Planning },
): Pick<SandboxVerbs, 'create'> {
  const { backend, database, idempotency, lifecycle, now, pressure, projects, quota, sandboxes, show } =
    context;

  function insert(
    principal: Principal,
    request: CreateSandbox,
    spec: SandboxSpec,
    from: SnapshotRow | undefined,
    idempotencyKey: string | undefined,
  ): SandboxRow {
    const { name, labels, onTimeout, ports, idle, retention, onBoot } = request;
    const row: SandboxRow = {
      id: newId('sbx'),
      project: principal.project,
      name: name ?? null,
      state: 'creating',
      reason: null,
      message: null,
      backend: spec.platform ?? backend.name,
      runtime: null,
      spec,
      labels,
      ports: ports.map((port) => (typeof port === 'number' ? { port, visibility: 'private' } : port)),
      timeoutMs: planning.timeoutOf(request),
      onTimeout,
      expiresAtMs: null,
      incarnation: 0,
      uid: null,
      createdAtMs: now(),
      startedAtMs: null,
      pausedAs: null,
      idle: recorded(idle),
      leaseUntilMs: null,
      usedAtMs: null,
      retention: recorded(retention),
      onBoot,
      base: from?.id ?? null,
      turn: 0,
      origin: from ? { snapshot: from.id, memory: request.memory ?? from.memory, start: true } : null,
      operation: null,
      imageBytes: null,
    };
    database.transaction(() => {
      const project = projects.get(principal.project);
      if (!project)
        throw new CayError('permission_denied', `Project "${principal.project}" does not exist any more`);
      quota.require(project.id, { sandboxes: 1, limits: spec.limits });
      pressure.admit(spec.limits, { platform: spec.platform });
      sandboxes.insert(row);
      if (idempotencyKey !== undefined)
        idempotency.remember(project.id, idempotencyKey, request, row.id, row.createdAtMs);
    });
    return row;
  }

  /** The sandbox that a create call means and that is there already, by its idempotency key or by name. */
  function existing(
    principal: Principal,
    request: CreateSandbox,
    idempotencyKey: string | undefined,
  ): Promise<Sandbox> | undefined {
    const id =
      idempotencyKey === undefined ? undefined : idempotency.find(principal.project, idempotencyKey, request);
    if (id !== undefined) {
      const row = sandboxes.get(id);
      if (row) return Promise.resolve(lifecycle.making(row.id) ?? row).then(show);
      throw new CayError(
        'not_found',
        `The sandbox "${id}" made with idempotency key "${idempotencyKey}" does not exist any more`,
        {
          hint: 'use a new key to make another',
        },
      );
    }
    if (!request.getOrCreate || request.name === undefined) return undefined;
    const row = sandboxes.byName(principal.project, request.name);
    if (!row || row.state === 'destroying') return undefined;
    const made = lifecycle.making(row.id);
    if (made) return made.then(show);
    return row.state === 'active' ? Promise.resolve(show(row)) : start(principal, row.id);
  }

  async function make(
    principal: Principal,
    request: CreateSandbox,
    from: SnapshotRow | undefined,
    options: CreateOptions,
  ) {
    const spec = await planning.specOf(request, from, options.exactly);
    await planning.requireAllowed(principal, { spec, timeoutMs: planning.timeoutOf(request) });
    await backend.validate(spec);
    // Another call may have come first meanwhile; from here to the insert nothing can come between.
    const meanwhile = existing(principal, request, options.idempotencyKey);
    if (meanwhile) return { sandbox: await meanwhile, created: false };
    const made = lifecycle.make(insert(principal, request, spec, from, options.idempotencyKey), principal);
    idling.changed();
    return { sandbox: show(await made), created: true };
  }

  return {
    async create(principal, request, options = {}) {
      if (request.getOrCreate && request.name === undefined)
        throw new CayError('invalid_argument', '"getOrCreate" needs a "name"');
      const before = existing(principal, request, options.idempotencyKey);
      if (before) return { sandbox: await before, created: false };
      const from = planning.originOf(principal, request);
      if (!from) return make(principal, request, undefined, options);
      return registry
        .using(from, () => make(principal, request, from, options))
        .catch((error: unknown) => {
          throw withHint(error);
        });
    },
  };
}
