import { CayError, type PublishedPort, type PublishPort } from '@cay/sdk/protocol';
import type { HostPortRow } from '../../records/tables/host-ports.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { HostPortVerbs } from './host-port.ts';
import { keyOf, type HostPortListeners } from './host-port-listeners.ts';
import type { ClaimedPorts } from './open-host-ports.ts';

const MAX_PORTS = 64;

export interface HostPortParts extends Pick<Core, 'lookup' | 'recordEvent' | 'records'> {
  claim(
    row: Pick<SandboxRow, 'id' | 'project'>,
    wanted: readonly PublishPort[],
  ): Promise<ClaimedPorts & { rows: HostPortRow[] }>;
  listeners: Pick<HostPortListeners, 'problems' | 'sync'>;
}

export function hostPortVerbs({
  lookup,
  recordEvent,
  records,
  claim,
  listeners,
}: HostPortParts): HostPortVerbs {
  const shown = (row: HostPortRow): PublishedPort => {
    const { protocol, hostPort, port, address } = row;
    const problem = listeners.problems.get(keyOf(row));
    return { protocol, hostPort, port, address, ...(problem !== undefined && { problem }) };
  };

  return {
    async publish(principal, ref, wanted) {
      const row = await lookup.find(principal, ref);
      const ports = await claim(row, [wanted]);
      try {
        await records.transaction(async (tx) => {
          if (!(await tx.sandboxes.get(row.id)))
            throw new CayError('not_found', `Sandbox "${row.id}" does not exist`);
          if ((await tx.hostPorts.list(row.id)).length >= MAX_PORTS)
            throw new CayError(
              'resource_exhausted',
              `Sandbox "${row.id}" has ${MAX_PORTS} published ports already`,
              { hint: 'unpublish one first' },
            );
          await ports.record(tx, principal);
        });
      } finally {
        await ports.settle();
      }
      return shown(ports.rows[0]!);
    },
    async unpublish(principal, ref, hostPort, protocol) {
      const row = await lookup.find(principal, ref);
      await records.transaction(async (tx) => {
        if (!(await tx.hostPorts.delete(row.id, protocol, hostPort)))
          throw new CayError(
            'not_found',
            `Port ${hostPort}/${protocol} of the machine does not lead to sandbox "${row.id}"`,
          );
        await recordEvent(tx, 'port.unpublished', row, principal, { protocol, hostPort });
      });
      await listeners.sync();
    },
    async published(principal, ref) {
      const { id } = await lookup.find(principal, ref);
      return (await records.hostPorts.list(id)).map(shown);
    },
  };
}
