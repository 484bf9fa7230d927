import type { PublishPort } from '@cay/sdk/protocol';
import { requirePublishing } from '../../policy/allow-publish.ts';
import type { HostPortRow } from '../../records/tables/host-ports.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Transaction } from '../../records/records.ts';
import type { Core } from '../core.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';
import type { SandboxVerbs } from '../sandboxes/sandbox.ts';
import type { Principal } from '../tenants/principal.ts';
import { hostPortListeners } from './host-port-listeners.ts';
import { hostPortVerbs } from './host-port-verbs.ts';
import type { HostPortVerbs } from './host-port.ts';

/** Ports that are listened on, for a sandbox that is about to be recorded. */
export interface ClaimedPorts {
  /**
   * In the transaction that inserts the sandbox. Rejects `conflict`, or `resource_exhausted` beyond the
   * quota.
   */
  record(tx: Transaction, principal: Principal): Promise<void>;
  /** Stops listening on what is not recorded. */
  settle(): Promise<void>;
}

export interface HostPorts {
  readonly verbs: HostPortVerbs;
  claim(row: Pick<SandboxRow, 'id' | 'project'>, wanted: readonly PublishPort[]): Promise<ClaimedPorts>;
  /** Listens on all that is recorded, and follows what other servers record. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export function openHostPorts({
  lookup,
  policy,
  quota,
  recordEvent,
  records,
  ...parts
}: Pick<Core, 'activity' | 'lookup' | 'onError' | 'policy' | 'quota' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
  previewConnection: SandboxVerbs['previewConnection'];
}): HostPorts {
  quota.counts('publishedPorts', 'published', (project, on) => on.hostPorts.count(project));
  const listeners = hostPortListeners({ ...parts, policy, records });
  let unlisten: (() => void) | undefined;

  async function claim(
    row: Pick<SandboxRow, 'id' | 'project'>,
    wanted: readonly PublishPort[],
  ): Promise<ClaimedPorts & { rows: HostPortRow[] }> {
    const rows: HostPortRow[] = [];
    const withAddresses = wanted.map((one) => ({ ...one, address: requirePublishing(policy, one) }));
    try {
      for (const { port, protocol, address, hostPort } of withAddresses) {
        const given = { protocol, address, port, sandbox: row.id, project: row.project };
        const listener = await listeners.claim(given, hostPort);
        rows.push({ ...given, hostPort: listener.hostPort });
      }
    } catch (error) {
      listeners.cancel(rows);
      throw error;
    }
    return {
      rows,
      async record(tx, principal) {
        if (rows.length === 0) return;
        await quota.requireRoom(tx, row.project, 'publishedPorts', rows.length);
        for (const one of rows) {
          await tx.hostPorts.insert(one);
          const { protocol, hostPort, port, address } = one;
          await recordEvent(tx, 'port.published', row, principal, { protocol, hostPort, port, address });
        }
      },
      async settle() {
        listeners.release(rows);
        if (rows.length > 0) await listeners.sync();
      },
    };
  }

  return {
    verbs: hostPortVerbs({ lookup, recordEvent, records, claim, listeners }),
    claim,
    async start() {
      unlisten = records.events.listen(({ type, sandbox }) => {
        if (type.startsWith('port.') || (type === 'sandbox.removed' && listeners.mayHave(sandbox)))
          listeners.syncSoon();
      });
      await listeners.sync();
    },
    async close() {
      unlisten?.();
      await listeners.close();
    },
  };
}
