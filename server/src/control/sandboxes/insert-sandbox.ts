/** The record of a new sandbox, and the sandbox that a repeated create finds in its place. */
import { CayError, type CreateSandbox } from '@cay/sdk/protocol';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { Core } from '../core.ts';
import type { ClaimedPorts } from '../host-ports/open-host-ports.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import type { Principal } from '../tenants/principal.ts';

/** A sandbox that a create found instead of making one. */
export interface Existing {
  row: SandboxRow;
  by: 'key' | 'name';
}

type InsertParts = Pick<Core, 'idempotency' | 'operations' | 'pressure' | 'quota' | 'records'>;

interface Insertion {
  row: SandboxRow;
  principal: Principal;
  request: CreateSandbox;
  ports: ClaimedPorts | undefined;
  idempotencyKey: string | undefined;
}

/**
 * Records the intent, if quota and machine have room, and holds the sandbox until `release`. Resolves the
 * sandbox that exists already for the idempotency key or the name: that is looked for in the transaction that
 * inserts, so that of several calls one makes it.
 */
export function insertSandbox(
  { idempotency, operations, pressure, quota, records }: InsertParts,
  { row, principal, request, ports, idempotencyKey }: Insertion,
): Promise<{ existing: Existing } | { release(): Promise<void> }> {
  const { project, spec, origin } = row;
  return records.transaction(async (tx) => {
    const existing = await findExisting(tx, principal, request, idempotencyKey);
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
export async function findExisting(
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
