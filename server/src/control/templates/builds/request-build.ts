import { randomUUID } from 'node:crypto';
import { CayError, SomeLimitsSchema } from '@cay/sdk/protocol';
import type { Principal } from '../../tenants/principal.ts';
import type { QuotaLedger } from '../../tenants/quota-ledger.ts';
import { pruneBuilds } from './build-leftovers.ts';
import type { BuildParts } from './build-parts.ts';
import type { Build, RequestBuild } from './build.ts';

interface RequestParts extends Pick<BuildParts, 'control' | 'records' | 'now'> {
  quota?: Pick<QuotaLedger, 'requireRoom'> | undefined;
}

/** Builds of one project that are waiting or building. */
const MOST_OPEN = 50;

/**
 * Records a build that waits. Rejects `already_exists` for a name that the backend has, `resource_exhausted`
 * if too many are under way.
 */
export async function requestBuild(
  { control, records, now, quota }: RequestParts,
  principal: Principal,
  { template, names, limits = {}, digest }: RequestBuild,
): Promise<Build> {
  const allowed = SomeLimitsSchema.safeParse(limits);
  if (!allowed.success)
    throw new CayError('invalid_argument', `The limits are not valid: ${allowed.error.issues[0]?.message}`);
  const templates = await control.templates(principal);
  const brought = templates.find(({ name, snapshot }) => snapshot === null && names.includes(name));
  if (brought)
    throw new CayError('already_exists', `A template named "${brought.name}" comes with the server`);
  const known = new Set(templates.map(({ name }) => name));
  // Checked again when they are saved; a refusal only then would waste the build.
  const more = names.filter((name) => !known.has(name)).length;
  if (more > 0) await quota?.requireRoom(records, principal.project, 'templates', more);
  const build: Build = {
    id: randomUUID(),
    project: principal.project,
    template,
    names: [...names],
    limits,
    digest: digest ?? null,
    state: 'waiting',
    start: null,
    ready: null,
    snapshot: null,
    failure: null,
    createdAtMs: now(),
    endedAtMs: null,
  };
  await records.transaction(async (tx) => {
    await pruneBuilds(tx, principal.project, now());
    if ((await tx.builds.unfinished(principal.project)).length >= MOST_OPEN)
      throw new CayError('resource_exhausted', `${MOST_OPEN} builds of the project are under way already`);
    await tx.builds.insert(build);
  });
  return build;
}
