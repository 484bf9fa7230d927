/** What goes along when a sandbox moves to another platform, and what does not. Changes nothing. */
import { CayError, isCayError, type MoveLoss, type MovePlan, type SandboxSpec } from '@cay/sdk/protocol';
import type { Backend, Snapshotting } from '../../backends/backend.ts';
import { ENFORCED_LIMITS, LIMIT_ABILITIES } from '../../policy/limit-abilities.ts';
import { usualLimits } from '../../policy/policy.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import { scopeOf } from '../sandboxes/scope-of.ts';
import { platformOf } from './placement.ts';
import { movableSnapshots } from '../snapshots/movable-snapshots.ts';

export interface SnapshottingPlatform {
  backend: Backend;
  snapshots: Snapshotting;
}

export interface PlannedMove {
  plan: MovePlan;
  /** Its spec on the other platform. */
  spec: SandboxSpec;
  source: SnapshottingPlatform;
  target: SnapshottingPlatform;
}

export type PlanMove = (row: SandboxRow, to: string, drop: readonly MoveLoss[]) => Promise<PlannedMove>;

export function movePlanner({
  backend,
  capabilitiesOf,
  policy,
  records,
}: Pick<Core, 'backend' | 'capabilitiesOf' | 'policy' | 'records'>): PlanMove {
  async function platform(name: string): Promise<SnapshottingPlatform> {
    const found = await backend.ability('platforms')!.get(name);
    const snapshots = found.ability('snapshots');
    if (snapshots) return { backend: found, snapshots };
    throw new CayError('unsupported', `Cannot move from or to platform "${name}": it has no snapshots`, {
      details: { platform: name },
    });
  }

  return async (row, to, drop) => {
    const platforms = backend.ability('platforms');
    if (!platforms) {
      const hint = 'start it with several, such as "--backend local,docker"';
      if (to === backend.name)
        throw new CayError('unsupported', `This server has one platform, "${backend.name}"`, { hint });
      throw new CayError('not_found', `Platform "${to}" is unknown: this server has one, "${backend.name}"`, {
        details: { what: 'platform' },
        hint,
      });
    }
    platforms.choose({ platform: to, labels: {} });
    const from = platformOf(row, backend);
    if (from === undefined)
      throw new CayError('failed_precondition', `It is not recorded where sandbox "${row.id}" is`);
    if (from === to)
      throw new CayError('failed_precondition', `Sandbox "${row.id}" is on platform "${to}" already`);
    const [source, target] = [await platform(from), await platform(to)];
    const losses: MovePlan['losses'] = [];
    const lose = (what: MoveLoss, why: string) => losses.push({ what, why });
    if (row.state === 'active' || row.state === 'paused')
      lose('memory', 'its processes end, and the command that it was created with starts again');

    const { abilities, runtimes } = await capabilitiesOf(to);
    const { runtime, mounts = [], ...spec } = row.spec;
    const kept = mounts.filter(
      ({ type }) => (type === 'tmpfs' && abilities.tmpfs) || (type === 'bucket' && abilities.bucketMounts),
    );
    const left = mounts.filter((mount) => !kept.includes(mount)).map(({ path }) => path);
    if (left.length > 0) lose('volumes', `${left.join(', ')} would not be mounted any more`);
    const hasRuntime = runtime !== undefined && runtimes.includes(runtime);
    if (runtime !== undefined && !hasRuntime) lose('runtime', `platform "${to}" has no runtime "${runtime}"`);
    const limits = { ...spec.limits };
    const lifted = ENFORCED_LIMITS.filter(
      (limit) => limits[limit] !== null && !abilities[LIMIT_ABILITIES[limit]],
    );
    for (const limit of lifted) limits[limit] = null;
    // What the platform before could not limit is limited again, as for a new sandbox.
    const could = (await capabilitiesOf(from)).abilities;
    for (const limit of ENFORCED_LIMITS)
      if (limits[limit] === null && abilities[LIMIT_ABILITIES[limit]] && !could[LIMIT_ABILITIES[limit]])
        limits[limit] = usualLimits(policy)[limit];
    if (lifted.length > 0)
      lose('limits', `platform "${to}" cannot enforce ${lifted.map((limit) => `"${limit}"`).join(', ')}`);

    if (could.snapshotRoot && !abilities.snapshotRoot)
      lose(
        'files',
        `platform "${to}" keeps the home directory, /tmp, /var/tmp, /run and the working directory, and no other files`,
      );

    const all = await records.snapshots.list({ sandbox: row.id, project: row.project });
    // Snapshots that are on the other platform already have stayed there at an earlier move.
    const own = all.filter((each) => each.spec.platform !== to);
    const movable = await movableSnapshots(records, row, from);
    const goes = drop.includes('snapshots') ? [] : movable;
    if (goes.length < own.length)
      lose(
        'snapshots',
        `${own.length - goes.length} of ${own.length} stay on platform "${from}"` +
          (movable.length < own.length
            ? ': sandboxes or templates there need them, or they are archived'
            : ''),
      );
    const moved: SandboxSpec = {
      ...spec,
      limits,
      platform: to,
      ...(hasRuntime && { runtime }),
      ...(kept.length > 0 && { mounts: kept }),
    };
    const { platform: _platform, ...there } = moved;
    await target.backend.validate(there, scopeOf(row)).catch((error: unknown) => {
      // The files come along: the template is not needed.
      if (!isCayError(error, 'not_found') || error.details['what'] !== 'template') throw error;
    });
    return { plan: { from, to, losses, snapshots: goes.length }, spec: moved, source, target };
  };
}
