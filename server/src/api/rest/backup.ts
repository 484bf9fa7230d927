import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

const TAR = 'application/x-tar';

export function backupRoutes(control: Pick<Control, 'backup'>): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/admin/backup',
      name: 'backup',
      summary: 'Stream a backup of all records and events',
      description:
        'Taken while the server runs. It has the secrets of the installation, sealed, and not the files of sandboxes. With `key` it also has the key that they are sealed with. ' +
        '`cay backup --verify` checks that one is complete.',
      tag: 'admin',
      access: 'admin',
      query: z.object({ key: Flag.optional() }).strict(),
      answers: { 200: { description: 'A tar archive', media: [TAR] } },
      async handle({ context, principal, signal, query }) {
        const data = await control.backup(principal, { signal, withKey: query.key ?? false });
        return bytesAnswer(context, data, { headers: { 'Content-Type': TAR, 'Cache-Control': 'no-store' } });
      },
    }),
  ];
}
