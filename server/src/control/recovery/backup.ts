import { CayError } from '@cay/sdk/protocol';
import type { OperatorVerbs } from '../control.ts';
import type { EventAppender } from '../../records/events/events.ts';
import { requireAdmin } from '../tenants/principal.ts';

/** `take` makes the archive; the records know how. */
export function backupVerb(
  events: EventAppender,
  take:
    | ((options: { signal: AbortSignal; withKey: boolean }) => Promise<AsyncIterable<Uint8Array>>)
    | undefined,
): OperatorVerbs['backup'] {
  return async (principal, options) => {
    requireAdmin(principal);
    if (!take) throw new CayError('unsupported', 'This server cannot make backups');
    const data = await take(options);
    const { project, key } = principal;
    await events.append({ type: 'backup.taken', project, key, data: { withKey: options.withKey } });
    return data;
  };
}
