import { CayError, type CreateSandbox, type Sandbox, type SandboxSpec } from '@cay/sdk/protocol';
import type { Tables } from '../../records/tables/tables.ts';
import { recorded, type SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import { withMemoryHint } from '../snapshots/memory-errors.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { ClaimedPorts, HostPorts } from '../host-ports/open-host-ports.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxMaker } from './make-sandbox.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import { secretsIn } from '../secrets/secrets-in.ts';
import { pinImage } from '../images/pin-image.ts';
import { withTemplateConfig } from '../templates/template-config.ts';
import { newSandboxRow } from './new-sandbox-row.ts';
import type { Planning } from './plan-sandbox.ts';
import type { CreateOptions, SandboxVerbs } from './sandbox.ts';

/** A sandbox that a create found instead of making one. */
interface Existing {
  row: SandboxRow;
  by: 'key' | 'name';
}

/**
 * Makes a sandbox from a template or a snapshot, once for each idempotency key, and with `getOrCreate` once
 * for each name.
 */
export function createVerb({
  backend,
  clock,
  enforcement,
  idempotency,
  lookup,
  operations,
  pressure,
  quota,
  records,
  hostPorts,
  idling,
  maker,
  planning,
  registry,
  start,
}: Pick<
  Core,
  | 'backend'
  | 'clock'
  | 'enforcement'
  | 'idempotency'
  | 'lookup'
  | 'operations'
  | 'pressure'
  | 'quota'
  | 'records'
> & {
  hostPorts: Pick<HostPorts, 'claim'>;
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
    network: Pick<SandboxRow, 'network' | 'templateNetwork'>,
  ): SandboxRow {
    const { name, labels, networks, onTimeout, ports, idle, retention, onBoot } = request;
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
      networks,
      ...network,
      origin: from ? { snapshot: from.id, memory: request.memory ?? from.memory, start: true } : null,
    });
  }

  /**
   * Records the intent, if quota and machine have room, and holds the sandbox until `release`. Resolves the
   * sandbox that exists already for the idempotency key or the name: that is looked for in the transaction that
   * inserts, so that of several calls one makes it.
   */
  function insert(
    row: SandboxRow,
    principal: Principal,
    request: CreateSandbox,
    ports: ClaimedPorts | undefined,
    idempotencyKey: string | undefined,
  ): Promise<{ existing: Existing } | { release(): Promise<void> }> {
    const { project, spec, origin } = row;
    return records.transaction(async (tx) => {
      const existing = await find(tx, principal, request, idempotencyKey);
      if (existing) return { existing };
      if (!(await tx.projects.get(project)))
        throw new CayError('permission_denied', `Project "${project}" does not exist any more`);
      // Another server may have removed it meanwhile.
      if (origin && (await tx.snapshots.get(origin.snapshot))?.state !== 'kept')
        throw new CayError('not_found', `Snapshot "${origin.snapshot}" does not exist`);
      await requireSecrets(tx, project, row.network);
      await quota.require(tx, project, { sandboxes: 1, limits: spec.limits });
      await pressure.admit(spec.limits, { platform: spec.platform, tx });
      await tx.sandboxes.insert(row);
      for (const sync of request.buckets) {
        if (!(await tx.buckets.get(project, sync.bucket)))
          throw new CayError('not_found', `Bucket "${sync.bucket}" does not exist`, {
            details: { what: 'bucket' },
            hint: `give it a name first: cay bucket add ${sync.bucket} s3://…`,
          });
        await tx.buckets.attach(row.id, sync);
      }
      await ports?.record(tx, principal);
      if (idempotencyKey !== undefined)
        await idempotency.remember(tx, project, idempotencyKey, request, row.id);
      return { release: await operations.hold(tx, row.id, 'create') };
    });
  }

  /** Of the idempotency key or, with `getOrCreate`, of the name. */
  async function find(
    on: Tables,
    { project }: Principal,
    request: CreateSandbox,
    idempotencyKey: string | undefined,
  ): Promise<Existing | undefined> {
    const id =
      idempotencyKey === undefined ? undefined : await on.idempotency.find(project, idempotencyKey, request);
    if (id !== undefined) {
      const row = await on.sandboxes.get(id);
      if (row) return { row, by: 'key' };
      throw new CayError(
        'not_found',
        `The sandbox "${id}" made with idempotency key "${idempotencyKey}" does not exist any more`,
        { hint: 'use a new key to make another' },
      );
    }
    if (!request.getOrCreate || request.name === undefined) return undefined;
    const row = await on.sandboxes.byName(project, request.name);
    return row && row.state !== 'destroying' ? { row, by: 'name' } : undefined;
  }

  /** Once it is made. One that was asked for by its name is started. */
  async function showExisting({ row, by }: Existing, principal: Principal): Promise<Sandbox> {
    const made = row.state === 'creating' ? await maker.made(row) : row;
    return by === 'key' || made.state === 'active' ? lookup.show(made) : start(principal, made.id);
  }

  async function make(
    principal: Principal,
    request: CreateSandbox,
    from: SnapshotRow | undefined,
    { exactly, idempotencyKey, withoutCommand }: CreateOptions,
  ) {
    const asked = from
      ? await withTemplateConfig(records, principal, request)
      : await pinImage(backend, request, exactly);
    const spec = await planning.specOf(principal, asked, from, exactly);
    if (withoutCommand) delete spec.cmd;
    await planning.requireAllowed(principal, { spec, timeoutMs: planning.timeoutOf(request) });
    await backend.validate(spec);
    if (spec.cmd !== undefined && request.buckets.some(({ direction }) => direction !== 'up'))
      throw new CayError(
        'invalid_argument',
        'A sandbox with a command of its own has no bucket to copy from',
        {
          hint: 'the command would start before the files are there: leave it out, and start it when the sandbox is there',
        },
      );
    const network = await planning.networkOf(principal, request, from);
    const row = rowFor(principal.project, asked, spec, from, network);
    if (secretsIn(row.network, row.templateNetwork).length > 0)
      await enforcement.requireNotFailed(row.backend, 'a rule with a secret');
    const ports = request.publish.length > 0 ? await hostPorts.claim(row, request.publish) : undefined;
    try {
      const inserted = await insert(row, principal, request, ports, idempotencyKey);
      if ('existing' in inserted)
        return { sandbox: await showExisting(inserted.existing, principal), created: false };
      try {
        const made = maker.make(row, principal);
        if (row.idle) idling.changed();
        return { sandbox: await lookup.show(await made), created: true };
      } finally {
        await inserted.release();
      }
    } finally {
      await ports?.settle();
    }
  }

  return {
    async create(principal, request, options = {}) {
      if (request.getOrCreate && request.name === undefined)
        throw new CayError('invalid_argument', '"getOrCreate" needs a "name"');
      // Before anything is checked or made; looked for again when it is inserted.
      const isRepeatable = options.idempotencyKey !== undefined || request.getOrCreate;
      const before = isRepeatable && (await find(records, principal, request, options.idempotencyKey));
      if (before) return { sandbox: await showExisting(before, principal), created: false };
      const from = await planning.originOf(principal, request);
      if (!from) return make(principal, request, undefined, options);
      return registry
        .using(from, () => make(principal, request, from, options))
        .catch((error: unknown) => {
          throw withMemoryHint(error);
        });
    },
  };
}
