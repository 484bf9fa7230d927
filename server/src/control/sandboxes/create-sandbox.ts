import { CayError, type CreateSandbox, type Sandbox, type SandboxSpec } from '@cay/sdk/protocol';
import { recorded, type SandboxRow } from '../../records/sandboxes.ts';
import type { SnapshotRow } from '../../records/snapshots.ts';
import type { Core } from '../core.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import { withMemoryHint } from '../snapshots/memory-errors.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxMaker } from './make-sandbox.ts';
import { pinImage } from '../images/pin-image.ts';
import { newSandboxRow } from './new-sandbox-row.ts';
import type { Planning } from './plan-sandbox.ts';
import type { CreateOptions, SandboxVerbs } from './sandbox.ts';

/**
 * Makes a sandbox from a template or a snapshot, once for each idempotency key, and with `getOrCreate` once
 * for each name.
 */
export function createVerb({
  backend,
  clock,
  lookup,
  pressure,
  quota,
  records: { database, idempotency, projects, sandboxes },
  idling,
  maker,
  planning,
  registry,
  start,
}: Pick<Core, 'backend' | 'clock' | 'lookup' | 'pressure' | 'quota' | 'records'> & {
  idling: Idling;
  maker: SandboxMaker;
  planning: Planning;
  registry: SnapshotRegistry;
  start: SandboxVerbs['start'];
}): Pick<SandboxVerbs, 'create'> {
  function rowFor(
    project: string,
    request: CreateSandbox,
    spec: SandboxSpec,
    from: SnapshotRow | undefined,
  ): SandboxRow {
    const { name, labels, onTimeout, ports, idle, retention, onBoot } = request;
    return newSandboxRow({
      project,
      name: name ?? null,
      backend: spec.platform ?? backend.name,
      spec,
      labels,
      ports: ports.map((port) => (typeof port === 'number' ? { port, visibility: 'private' } : port)),
      timeoutMs: planning.timeoutOf(request),
      onTimeout,
      createdAtMs: clock.now(),
      idle: recorded(idle),
      retention: recorded(retention),
      onBoot,
      origin: from ? { snapshot: from.id, memory: request.memory ?? from.memory, start: true } : null,
    });
  }

  /** Records the intent, if quota and machine have room. */
  function insert(row: SandboxRow, request: CreateSandbox, idempotencyKey: string | undefined): SandboxRow {
    const { spec } = row;
    return database.transaction(() => {
      const project = projects.get(row.project);
      if (!project)
        throw new CayError('permission_denied', `Project "${row.project}" does not exist any more`);
      quota.require(project.id, { sandboxes: 1, limits: spec.limits });
      pressure.admit(spec.limits, { platform: spec.platform });
      sandboxes.insert(row);
      if (idempotencyKey !== undefined)
        idempotency.remember(project.id, idempotencyKey, request, row.id, row.createdAtMs);
      return row;
    });
  }

  /** The sandbox that exists already for the idempotency key or, with `getOrCreate`, for the name. */
  function existing(
    principal: Principal,
    request: CreateSandbox,
    idempotencyKey: string | undefined,
  ): Promise<Sandbox> | undefined {
    const id =
      idempotencyKey === undefined ? undefined : idempotency.find(principal.project, idempotencyKey, request);
    if (id !== undefined) {
      const row = sandboxes.get(id);
      if (row) return Promise.resolve(maker.making(row.id) ?? row).then(lookup.show);
      throw new CayError(
        'not_found',
        `The sandbox "${id}" made with idempotency key "${idempotencyKey}" does not exist any more`,
        { hint: 'use a new key to make another' },
      );
    }
    if (!request.getOrCreate || request.name === undefined) return undefined;
    const row = sandboxes.byName(principal.project, request.name);
    if (!row || row.state === 'destroying') return undefined;
    const made = maker.making(row.id);
    if (made) return made.then(lookup.show);
    return row.state === 'active' ? Promise.resolve(lookup.show(row)) : start(principal, row.id);
  }

  async function make(
    principal: Principal,
    request: CreateSandbox,
    from: SnapshotRow | undefined,
    { exactly, idempotencyKey }: CreateOptions,
  ) {
    const asked = from ? request : await pinImage(backend, request, exactly);
    const spec = await planning.specOf(asked, from, exactly);
    await planning.requireAllowed(principal, { spec, timeoutMs: planning.timeoutOf(request) });
    await backend.validate(spec);
    // Another call may have made it meanwhile. From here to the insert nothing is awaited.
    const meanwhile = existing(principal, request, idempotencyKey);
    if (meanwhile) return { sandbox: await meanwhile, created: false };
    const row = insert(rowFor(principal.project, asked, spec, from), request, idempotencyKey);
    const made = maker.make(row, principal);
    idling.changed();
    return { sandbox: lookup.show(await made), created: true };
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
          throw withMemoryHint(error);
        });
    },
  };
}
