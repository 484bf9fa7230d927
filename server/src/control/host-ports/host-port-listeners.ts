/**
 * The ports of this machine that are listened on. What is recorded is listened on and nothing else, but for
 * ports that are *claimed*: listened on before they are recorded, because only that tells whether they are
 * free.
 */
import { randomInt } from 'node:crypto';
import { CayError, isCayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import { inBackground } from '../../lib/in-background.ts';
import type { HostPortRow } from '../../records/tables/host-ports.ts';
import type { Core } from '../core.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';
import type { SandboxVerbs } from '../sandboxes/sandbox.ts';
import { listenForDatagrams } from './host-datagrams.ts';
import { listenOnHost, type HostListener } from './host-listener.ts';

type Given = Pick<HostPortRow, 'protocol' | 'sandbox' | 'address' | 'port'>;
type Key = Pick<HostPortRow, 'protocol' | 'hostPort'>;

export interface HostPortListeners {
  /** On the port that is wanted, or on a free one for 0. Rejects `conflict`. The port is claimed. */
  claim(row: Given, wanted: number): Promise<HostListener>;
  /** From now on these ports are listened on only if they are recorded: at the next `sync`. */
  release(rows: readonly Key[]): void;
  /** Releases them, and stops listening at once. */
  cancel(rows: readonly Key[]): void;
  /** Resolves when what is recorded is listened on, and nothing else. */
  sync(): Promise<void>;
  syncSoon(): void;
  /** Why a recorded port is not listened on, by `keyOf`. It is tried again until it is free. */
  readonly problems: ReadonlyMap<string, string>;
  /** Whether the sandbox has a port here, or may have one when its port is free. */
  mayHave(sandbox: string | null): boolean;
  close(): Promise<void>;
}

const TRIES = 64;
const RETRY_MS = 5000;

export const keyOf = ({ protocol, hostPort }: Key): string => `${protocol} ${hostPort}`;

export function hostPortListeners({
  activity,
  guestAccess,
  onError,
  policy,
  previewConnection,
  records,
}: Pick<Core, 'activity' | 'onError' | 'policy' | 'records'> & {
  guestAccess: GuestAccess;
  previewConnection: SandboxVerbs['previewConnection'];
}): HostPortListeners {
  /** By protocol and port of the machine. */
  const listeners = new Map<string, HostListener>();
  /** Those that are listened on before they are recorded. */
  const claimed = new Set<string>();
  /** Those that are about to be listened on: a port of one address must not be taken on another meanwhile. */
  const opening = new Set<string>();
  const problems = new Map<string, string>();
  let retry: NodeJS.Timeout | undefined;
  let closed = false;
  let syncing: Promise<void> = Promise.resolve();

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

  async function claim(row: Given, wanted: number) {
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

  function stopListening(key: string): void {
    listeners.get(key)?.close();
    listeners.delete(key);
  }

  async function syncOnce(): Promise<void> {
    const rows = new Map((await records.hostPorts.list()).map((row) => [keyOf(row), row]));
    if (closed) return;
    for (const [key, { sandbox }] of listeners)
      if (!claimed.has(key) && rows.get(key)?.sandbox !== sandbox) stopListening(key);
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
  function sync(): Promise<void> {
    const next = syncing.then(syncOnce);
    syncing = next.catch(onError);
    return next;
  }
  const syncSoon = () => inBackground(sync(), () => {});

  const release = (rows: readonly Key[]) => rows.forEach((row) => claimed.delete(keyOf(row)));
  return {
    claim,
    release,
    cancel(rows) {
      for (const row of rows) stopListening(keyOf(row));
      release(rows);
    },
    sync,
    syncSoon,
    problems,
    mayHave: (id) => listeners.values().some(({ sandbox }) => sandbox === id) || problems.size > 0,
    async close() {
      closed = true;
      clearTimeout(retry);
      await syncing;
      for (const key of listeners.keys()) stopListening(key);
    },
  };
}
