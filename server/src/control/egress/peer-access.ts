import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { PeerAccess } from '../../egress/peers.ts';
import { connectionStream } from '../../guest/connection-stream.ts';
import type { Core } from '../core.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';

/** How long a list of ports is good for: programs look a name up right before they connect. */
const FRESH_MS = 500;
/** The guest of the program that asks waits two seconds. */
const PATIENCE_MS = 1000;
const MAX_KNOWN = 10_000;

interface Known {
  at: number;
  ports: Promise<readonly number[]>;
}

/**
 * How sandboxes of one named network are reached: as visitors of previews reach them, without counting as
 * one.
 */
export function peerAccess({
  activity,
  backend,
  clock,
  guestAccess,
  records,
}: Pick<Core, 'activity' | 'backend' | 'clock' | 'records'> & { guestAccess: GuestAccess }): PeerAccess {
  const known = new Map<SandboxId, Known>();

  async function ask(id: SandboxId): Promise<readonly number[]> {
    const row = await records.sandboxes.get(id);
    if (row?.state !== 'active') throw new CayError('failed_precondition', 'It does not run');
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const guest = await backend.connect(id, { signal });
    return (await guest.ports.list({ signal })).map(({ port }) => port);
  }

  return {
    ports(id) {
      const before = known.get(id);
      if (before && clock.steady() - before.at < FRESH_MS) return before.ports;
      // A sandbox that is paused has the ports that it had: a connection wakes it.
      const ports = ask(id).catch(() => before?.ports ?? []);
      known.delete(id);
      known.set(id, { at: clock.steady(), ports });
      if (known.size > MAX_KNOWN) known.delete(known.keys().next().value!);
      return ports;
    },
    async connect(id, port, signal) {
      activity.touch(id);
      return connectionStream(await guestAccess.guest(id, 'preview').ports.connect(port, { signal }));
    },
  };
}
