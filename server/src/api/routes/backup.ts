import type { EventLog } from '../../control/records/events.ts';
import { route, type Route } from '../route.ts';
import { bytesAnswer } from '../stream-answer.ts';

const TAR = 'application/x-tar';

export function backupRoutes(events: EventLog, backup: (signal: AbortSignal) => Promise<AsyncIterable<Uint8Array>>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/admin/backup',
      name: 'backup',
      summary: 'Stream a backup of all records and events',
      description:
        'Taken while the server goes on. It has the secrets of the installation in it, and not the files of sandboxes. ' +
        '`cay backup --verify` tells whether one is whole.',
      tag: 'admin',
      access: 'admin',
      answers: { 200: { description: 'A tar archive', media: [TAR] } },
      async handle({ context, principal, signal }) {
        const data = await backup(signal);
        events.append({ type: 'backup.taken', project: principal.project, key: principal.key });
        return bytesAnswer(context, data, { headers: { 'Content-Type': TAR, 'Cache-Control': 'no-store' } });
      },
    }),
  ];
}
