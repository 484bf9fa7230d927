import { z } from 'zod';
import type { EventLog } from '../../control/events/event-log.ts';
import { Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

/** `withKey` puts the key into it that its secrets are sealed with. */
export type TakeBackup = (options: {
  signal: AbortSignal;
  withKey: boolean;
}) => Promise<AsyncIterable<Uint8Array>>;

const TAR = 'application/x-tar';

export function backupRoutes(events: EventLog, backup: TakeBackup): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/admin/backup',
      name: 'backup',
      summary: 'Stream a backup of all records and events',
      description:
        'Taken while the server goes on. It has the secrets of the installation in it, sealed, and not the files of sandboxes. With `key` it has the key that they are sealed with, too. ' +
        '`cay backup --verify` tells whether one is whole.',
      tag: 'admin',
      access: 'admin',
      query: z.object({ key: Flag.optional() }).strict(),
      answers: { 200: { description: 'A tar archive', media: [TAR] } },
      async handle({ context, principal, signal, query }) {
        const withKey = query.key ?? false;
        const data = await backup({ signal, withKey });
        events.append({
          type: 'backup.taken',
          project: principal.project,
          key: principal.key,
          data: { withKey },
        });
        return bytesAnswer(context, data, { headers: { 'Content-Type': TAR, 'Cache-Control': 'no-store' } });
      },
    }),
  ];
}
