import { CayError, isCayError, type PublishPort } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { randomInt } from 'node:crypto';
import { inBackground } from '../../lib/in-background.ts';
import { requirePublishing } from '../../policy/allow-publish.ts';
import type { HostPortRow } from '../../records/tables/host-ports.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Transaction } from '../../records/records.ts';
import type { Core } from '../core.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';
import type { SandboxVerbs } from '../sandboxes/sandbox.ts';
import type { Principal } from '../tenants/principal.ts';
import { hostPortVerbs } from './host-port-verbs.ts';
import { listenForDatagrams } from './host-datagrams.ts';
import { listenOnHost, type HostListener } from './host-listener.ts';
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

type Given = Pick<HostPortRow, 'protocol' | 'sandbox' | 'address' | 'port'>;

const TRIES = 64;
const RETRY_MS = 5000;

const keyOf = ({ protocol, hostPort }: Pick<HostPortRow, 'protocol' | 'hostPort'>) =>
  `${protocol} ${hostPort}`;

export function openHostPorts({
  activity,
  guestAccess,
  lookup,
  onError,
  policy,
  previewConnection,
  quota,
  recordEvent,
  records,
}: Pick<Core, 'activity' | 'lookup' | 'onError' | 'policy' | 'quota' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
  previewConnection: SandboxVerbs['previewConnection'];
}): HostPorts {
  /** By protocol and port of the machine. */
  const listeners = new Map<string, HostListener>();
  /** Those that are listened on before they are recorded. */
  const claimed = new Set<string>();
  /** Those that are about to be listened on: a port of one address must not be taken on another meanwhile. */
  const opening = new Set<string>();
  const problems = new Map<string, string>();
  let retry: NodeJS.Timeout | undefined;
  let unlisten: (() => void) | undefined;
  let closed = false;
  let syncing: Promise<void> = Promise.resolve();
  quota.counts('publishedPorts', 'published', (project, on) => on.hostPorts.count(project));

  function open(row: Given, hostPort: number) {
    const { protocol, sandbox, address, port } = row;
    const listenOn = protocol === 'udp' ? listenForDatagrams : listenOnHost;
    return listenOn({ sandbox, address, hostPort }, async (signal) => {
      const counted = await previewConnection(sandbox);
      try {
        activity.touch(sandbox);
        const { ports } = guestAccess.guest(sandbox, 'preview');
        const connection = await ports.connect(port, { signal, datagrams: protocol === 'udp' });
        return Object.assign(connection, { [Symbol.dispose]: () => counted[Symbol.dispose]() });
      } catch (error) {
        counted[Symbol.dispose]();
        throw error;
      }
    });
  }

  /** On the port that is asked for, or on a free one. */
  async function listen(row: Given, wanted: number) {
    const [low, high] = policy.publishing.ports;
    for (let tried = 0; ; tried++) {
      const hostPort = wanted === 0 ? randomInt(low, high + 1) : wanted;
      const key = keyOf({ ...row, hostPort });
      try {
        if (listeners.has(key) || problems.has(key) || opening.has(key))
          throw new CayError(
            'conflict',
            `Port ${hostPort} of the server's machine leads to a sandbox already`,
            {
              details: { hostPort },
              hint: 'choose another port, or 0 for a free one',
            },
          );
        opening.add(key);
        const listener = await open(row, hostPort).finally(() => opening.delete(key));
        listeners.set(key, listener);
        claimed.add(key);
        return listener;
      } catch (error) {
        if (wanted !== 0 || tried >= TRIES || !isCayError(error, 'conflict')) throw error;
      }
    }
  }

  function close(key: string): void {
    listeners.get(key)?.close();
    listeners.delete(key);
  }

  /** Listens on what is recorded and on nothing else. */
  async function sync(): Promise<void> {
    const rows = new Map((await records.hostPorts.list()).map((row) => [keyOf(row), row]));
    if (closed) return;
    for (const [key, { sandbox }] of listeners)
      if (!claimed.has(key) && rows.get(key)?.sandbox !== sandbox) close(key);
    for (const key of problems.keys()) if (!rows.has(key)) problems.delete(key);
    for (const [key, row] of rows) {
      // Who is about to listen on it synchronizes again.
      if (listeners.has(key) || opening.has(key)) continue;
      try {
        opening.add(key);
        const listener = await open(row, row.hostPort).finally(() => opening.delete(key));
        if (closed) return listener.close();
        listeners.set(key, listener);
        problems.delete(key);
      } catch (error) {
        // Reported once; the answer of the API has it until the port is free.
        if (!problems.has(key)) onError(error);
        problems.set(key, systemReason(error));
      }
    }
    clearTimeout(retry);
    if (problems.size > 0 && !closed) retry = setTimeout(syncSoon, RETRY_MS).unref();
  }

  /** One after the other: two at once would listen on the same port. */
  function synced(): Promise<void> {
    const next = syncing.then(sync);
    syncing = next.catch(onError);
    return next;
  }
  const syncSoon = () => inBackground(synced(), () => {});

  async function claim(
    row: Pick<SandboxRow, 'id' | 'project'>,
    wanted: readonly PublishPort[],
  ): Promise<ClaimedPorts & { rows: HostPortRow[] }> {
    const rows: HostPortRow[] = [];
    const release = () => rows.forEach((row) => claimed.delete(keyOf(row)));
    const withAddresses = wanted.map((one) => ({ ...one, address: requirePublishing(policy, one) }));
    try {
      for (const { port, protocol, address, hostPort } of withAddresses) {
        const given = { protocol, address, port, sandbox: row.id, project: row.project };
        const listener = await listen(given, hostPort);
        rows.push({ ...given, hostPort: listener.hostPort });
      }
    } catch (error) {
      for (const row of rows) close(keyOf(row));
      release();
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
        release();
        if (rows.length > 0) await synced();
      },
    };
  }

  const verbs = hostPortVerbs({ lookup, recordEvent, records, claim, synced, problems });
  const isOf = (id: string | null) =>
    listeners.values().some(({ sandbox }) => sandbox === id) || problems.size > 0;
  return {
    verbs,
    claim,
    async start() {
      unlisten = records.events.listen(({ type, sandbox }) => {
        if (type.startsWith('port.') || (type === 'sandbox.removed' && isOf(sandbox))) syncSoon();
      });
      await synced();
    },
    async close() {
      closed = true;
      unlisten?.();
      clearTimeout(retry);
      await syncing;
      for (const key of listeners.keys()) close(key);
    },
  };
}
