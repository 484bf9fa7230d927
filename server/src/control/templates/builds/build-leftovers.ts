/** What builds leave, and what removes it. */
import { isCayError } from '@cay/sdk/protocol';
import type { Principal } from '../../tenants/principal.ts';
import type { Tables } from '../../../records/tables/tables.ts';
import type { BuildParts } from './build-parts.ts';
import { OF_BUILD } from './build-sandboxes.ts';
import type { Build } from './build.ts';

const KEPT = 1000;
/** A log may have megabytes, so only the logs of the newest builds are kept. */
const KEPT_LOGS = 100;
const WAITING_MS = 24 * 3600_000;

/** Removes what a build of a killed server left. Steps that it has recorded serve later builds. */
export async function clearBuild(
  { control, records, onError }: BuildParts,
  { id, project }: Build,
): Promise<void> {
  const principal: Principal = { project, key: null, role: 'admin' };
  const label = `${OF_BUILD}=${id}`;
  const { sandboxes } = await control.list(principal, { label, limit: 1000 });
  for (const sandbox of sandboxes) await control.remove(principal, sandbox.id).catch(onError);
  const { snapshots } = await control.snapshots(principal, { label, limit: 1000 });
  for (const { id: snapshot } of snapshots) {
    if (await records.buildSteps.has(snapshot)) continue;
    await control.removeSnapshot(principal, snapshot).catch((error: unknown) => {
      // A template has it already.
      if (!isCayError(error, 'failed_precondition')) onError(error);
    });
  }
}

/** Removes snapshots that no template is made of any more, unless sandboxes need them. */
export async function removeSuperseded(
  { control, records, onError }: BuildParts,
  principal: Principal,
): Promise<void> {
  for (const snapshot of await records.builds.superseded(principal.project)) {
    try {
      await control.removeSnapshot(principal, snapshot);
      await records.builds.dropped(snapshot);
    } catch (error) {
      if (isCayError(error, 'not_found')) await records.builds.dropped(snapshot);
      else if (!isCayError(error, 'failed_precondition') && !isCayError(error, 'conflict')) onError(error);
    }
  }
}

/** Forgets the oldest builds of a project, and those that were requested and never started. */
export async function pruneBuilds(on: Tables, project: string, nowMs: number): Promise<void> {
  await on.builds.prune(project, { keep: KEPT, keepLogs: KEPT_LOGS, waitingBeforeMs: nowMs - WAITING_MS });
}
