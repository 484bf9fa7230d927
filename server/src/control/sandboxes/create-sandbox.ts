import { CayError, type CreateSandbox, type Sandbox, type SandboxSpec } from '@cay/sdk/protocol';
import { recorded, type SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import type { Idling } from '../pausing/idle-policy.ts';
import { withMemoryHint } from '../snapshots/memory-errors.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { HostPorts } from '../host-ports/open-host-ports.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxMaker } from './make-sandbox.ts';
import { secretsIn } from '../secrets/secrets-in.ts';
import { pinImage } from '../images/pin-image.ts';
import { withTemplateConfig } from '../templates/template-config.ts';
import { findExisting, insertSandbox, type Existing } from './insert-sandbox.ts';
import { newSandboxRow } from './new-sandbox-row.ts';
import type { Planning } from './plan-sandbox.ts';
import type { CreateOptions, SandboxVerbs } from './sandbox.ts';

/**
 * Makes a sandbox from a template or a snapshot, once for each idempotency key, and with `getOrCreate` once
 * for each name.
 */
export function createVerb(
  parts: Pick<
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
  },
): Pick<SandboxVerbs, 'create'> {
  const {
    backend,
    clock,
    enforcement,
    lookup,
    records,
    hostPorts,
    idling,
    maker,
    planning,
    registry,
    start,
  } = parts;
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
      const inserted = await insertSandbox(parts, { row, principal, request, ports, idempotencyKey });
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
      const before =
        isRepeatable && (await findExisting(records, principal, request, options.idempotencyKey));
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
