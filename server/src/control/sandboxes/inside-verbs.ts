import { setTimeout as sleep } from 'node:timers/promises';
import type { Core } from '../core.ts';
import { statsReader } from '../stats/stats-verbs.ts';
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
  const stats = statsReader({ backend, egress });

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
