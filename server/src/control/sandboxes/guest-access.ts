/**
 * How calls reach the guest of a sandbox: they wait at its gate, wake it if it is paused, and are counted
 * while they last.
 */
import type { SandboxId } from '@cay/sdk/protocol';
import type { Guest } from '../../guest/guest.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Core } from '../core.ts';
import type { Waker } from '../pausing/wake.ts';
import type { Use } from './activity.ts';
import type { SandboxMaker } from './make-sandbox.ts';
import { notRunning, notRunningForVisitors } from './not-running.ts';
import { trackedGuest, type GuestCall } from './tracked-guest.ts';

export interface GuestAccess {
  /**
   * The guest of a sandbox, once it is active. Rejects `not_found`, or `failed_precondition` if it is stopped
   * or has failed.
   */
  enter(id: SandboxId): Promise<{ guest: Guest; row: SandboxRow }>;
  /** A guest that connects at its first call. A connection to a port counts as `connection`. */
  guest(id: SandboxId, connection: Use): Guest;
}

export function openGuestAccess({
  activity,
  backend,
  commandLimit,
  lookup,
  maker,
  waker,
}: Pick<Core, 'activity' | 'backend' | 'commandLimit' | 'lookup'> & {
  maker: SandboxMaker;
  waker: Waker;
}): GuestAccess {
  /** Waits until the sandbox is active, and wakes it if it is paused. */
  async function active(id: SandboxId): Promise<SandboxRow> {
    for (;;) {
      await activity.gateOpen(id);
      const row = await lookup.reload({ id });
      if (row.state === 'active') return row;
      if (row.state === 'creating') {
        const made = await maker.made(row);
        if (made.state === 'creating') throw notRunning(made);
      } else if (row.state === 'paused') await waker.wake(id);
      else throw notRunning(row);
    }
  }

  async function activeForVisitor(id: SandboxId): Promise<void> {
    try {
      await active(id);
    } catch (error) {
      throw notRunningForVisitors(error);
    }
  }

  function guest(id: SandboxId, connection: Use): Guest {
    let connected: { guest: Guest; epoch: number } | undefined;

    async function call(use: Use): Promise<GuestCall> {
      for (;;) {
        const isFresh = connected?.epoch === activity.epoch(id);
        if (!isFresh) await (connection === 'preview' ? activeForVisitor(id) : active(id));
        const counted = activity.enter(id, use);
        // A pause or rollback has closed the gate meanwhile.
        if (!counted) {
          await activity.gateOpen(id);
          continue;
        }
        if (isFresh) return guestCallOf(connected!.guest, counted);
        const epoch = activity.epoch(id);
        try {
          connected = { guest: await backend.connect(id), epoch };
          return guestCallOf(connected.guest, counted);
        } catch (error) {
          counted[Symbol.dispose]();
          if ((await lookup.reload({ id })).state !== 'paused') throw error;
        }
      }
    }

    return trackedGuest({
      call,
      hold: (use) => activity.hold(id, use),
      admit: (inside, begin) => commandLimit.start(id, inside, begin),
      connection,
    });
  }

  return {
    async enter(id) {
      return { row: await active(id), guest: guest(id, 'client') };
    },
    guest,
  };
}

const guestCallOf = (guest: Guest, counted: Disposable): GuestCall => ({
  guest,
  [Symbol.dispose]: () => counted[Symbol.dispose](),
});
