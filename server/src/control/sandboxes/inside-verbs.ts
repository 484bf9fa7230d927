import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxId, Stats } from '@cay/sdk/protocol';
import type { CallScope } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import { auditedFiles, type OnFileChange } from './audited-files.ts';
import type { GuestAccess } from './guest-access.ts';
import type { SandboxVerbs } from './sandbox.ts';

/** What callers do inside a sandbox, and what it uses. */
export function insideVerbs({
  backend,
  egress,
  guestAccess,
  lookup,
  recordEvent,
  records,
}: Pick<Core, 'backend' | 'egress' | 'lookup' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
}): Pick<SandboxVerbs, 'files' | 'stats' | 'samples' | 'lookup' | 'ids'> {
  /** What the server carries for it, where the platform does not count. */
  async function stats(id: SandboxId, options?: CallScope): Promise<Stats> {
    const read = await backend.stats(id, options);
    const carried = egress?.engine.stats(id);
    if (!carried) return read;
    return { ...read, networkRxBytes: carried.bytesIn, networkTxBytes: carried.bytesOut };
  }

  return {
    async files(principal, ref, asked) {
      const { guest, row } = await guestAccess.enter((await lookup.find(principal, ref)).id);
      const user = asked ?? row.spec.user;
      const onChange: OnFileChange = (type, data) => recordEvent(records, type, row, principal, data);
      return { files: auditedFiles(guest.files(user), user, onChange), row, user };
    },

    stats: async (principal, ref, options) => stats((await lookup.find(principal, ref)).id, options),

    async samples(principal, ref, { intervalMs, signal }) {
      const { id } = await lookup.find(principal, ref);
      const first = await stats(id, { signal });
      return (async function* () {
        yield first;
        for (;;) {
          await sleep(intervalMs, undefined, { signal });
          yield await stats(id, { signal });
        }
      })();
    },

    lookup: (id) => records.sandboxes.get(id),

    ids: async ({ state } = {}) =>
      state === undefined ? records.sandboxes.ids() : records.sandboxes.list({ state }),
  };
}
