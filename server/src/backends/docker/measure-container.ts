import { CayError, type SandboxId, type Stats } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';
import type { Resizable } from '../abilities/resizing.ts';
import { requireLimits } from '../support/check.ts';
import { LABELS, resources } from './container-config.ts';
import { toStats, type ContainerStats } from './container-stats.ts';
import { readyContainer, type DockerContext } from './docker-context.ts';

export async function statsOfContainer(
  context: DockerContext,
  id: SandboxId,
  { signal }: CallScope = {},
): Promise<Stats> {
  const action = `read the stats of sandbox "${id}"`;
  const found = await readyContainer(context, id, action, { signal });
  const { machine } = await context.engine();
  const now = context.guests.open(found);
  const [read] = await Promise.all([
    context.client.json('GET', `/containers/${found.container}/stats`, {
      action,
      query: { stream: false, 'one-shot': true },
      signal,
    }),
    // A frozen guest does not answer, and nothing is killed meanwhile.
    found.inspect.State.Paused ||
      now.link.current?.stats({ signal }).then(
        ({ oomKills }) => (now.oomKills = oomKills),
        () => {},
      ),
  ]);
  const { Memory } = found.inspect.HostConfig;
  return toStats(read as ContainerStats, {
    memoryLimitBytes: Memory === machine.memoryBytes ? 0 : Memory,
    diskLimitBytes: Number(found.inspect.Config.Labels?.[LABELS.diskBytes]) || null,
    oomKills: now.oomKills,
  });
}

export async function resizeContainer(
  context: DockerContext,
  id: SandboxId,
  limits: Resizable,
  scope: CallScope = {},
): Promise<void> {
  requireLimits(limits);
  const action = `resize sandbox "${id}"`;
  const { container } = await readyContainer(context, id, action, scope);
  const { machine } = await context.engine();
  if (limits.diskBytes !== undefined && limits.diskBytes !== null)
    throw new CayError('unsupported', `Cannot ${action}: Docker cannot change the disk of a container`);
  const used = await statsOfContainer(context, id, scope);
  for (const [limit, inUse] of [
    ['memoryBytes', used.memoryBytes],
    ['pids', used.pids],
  ] as const) {
    const wanted = limits[limit];
    if (typeof wanted === 'number' && wanted < inUse) {
      throw new CayError(
        'failed_precondition',
        `Cannot ${action}: ${inUse} of "${limit}" are in use, more than the ${wanted} asked for`,
      );
    }
  }
  await context.client.json('POST', `/containers/${container}/update`, {
    action,
    body: resources(limits, machine),
    signal: scope.signal,
  });
}
