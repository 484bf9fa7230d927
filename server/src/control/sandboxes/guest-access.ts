/**
 * How calls get into a sandbox: they wait for what is being decided about it, wake it if need be, and are
 * counted while they last.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { Guest } from '../../guest/guest.ts';
import type { Use } from './activity.ts';
import { trackedGuest, type GuestCall } from './tracked-guest.ts';
import type { Context } from '../context.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';

export interface GuestAccess {
  /**
   * The guest of a sandbox, once it runs. Rejects `not_found`, or `failed_precondition` if it does not run
   * and does not wake.
   */
  enter(id: SandboxId): Promise<{ guest: Guest; row: SandboxRow }>;
  /** A guest that is asked for nothing yet. */
  guest(id: SandboxId, connection: Use): Guest;
}

export function openGuestAccess(context: Context, wake: (id: SandboxId) => Promise<SandboxRow>): GuestAccess {
  const { activity, backend, commands, lifecycle } = context;

  async function running(id: SandboxId): Promise<SandboxRow> {
    for (;;) {
      await activity.opened(id);
      const row = context.again({ id });
      if (row.state === 'active') return row;
      if (row.state === 'creating' && lifecycle.making(id)) await lifecycle.making(id);
      else if (row.state === 'paused') await wake(id);
      else throw notRunning(row);
    }
  }

  function guest(id: SandboxId, connection: Use): Guest {
    let known: { guest: Guest; epoch: number } | undefined;

    async function visit(use: Use): Promise<GuestCall> {
      for (;;) {
        const fresh = known?.epoch === activity.epoch(id);
        if (!fresh)
          await (connection === 'preview'
            ? running(id).catch((error: unknown) => {
                throw notForVisitors(error);
              })
            : running(id));
        const inside = activity.enter(id, use);
        if (!inside) {
          // A pause or rollback came first; what it decides is looked at anew.
          await activity.opened(id);
          continue;
        }
        if (fresh) return guestCallOf(known!.guest, inside);
        const epoch = activity.epoch(id);
        try {
          known = { guest: await backend.connect(id), epoch };
          return guestCallOf(known.guest, inside);
        } catch (error) {
          inside[Symbol.dispose]();
          if (context.again({ id }).state !== 'paused') throw error;
        }
      }
    }

    return trackedGuest({
      visit,
      hold: (use) => activity.within(id, use),
      admit: (inside, begin) => commands.start(id, inside, begin),
      connection,
    });
  }

  return {
    async enter(id) {
      return { row: await running(id), guest: guest(id, 'client') };
    },
    guest,
  };
}

/** Why a sandbox does not run is none of the business of its preview's visitors. */
export function notForVisitors(cause?: unknown): CayError {
  return new CayError('unavailable', 'The sandbox behind this preview is not running', { cause });
}

const guestCallOf = (guest: Guest, inside: Disposable): GuestCall => ({
  guest,
  [Symbol.dispose]: () => inside[Symbol.dispose](),
});

export function notRunning(row: SandboxRow): CayError {
  return new CayError(
    'failed_precondition',
    `Sandbox "${row.id}" is ${row.state}${row.message ? `: ${row.message}` : ''}`,
    {
      details: { sandbox: row.name ?? row.id, state: row.state, ...(row.reason && { reason: row.reason }) },
      hint: row.state === 'destroying' ? undefined : 'start it first',
    },
  );
}
