/**
 * What commands that are left running have written before their sandbox is stopped, rolled back or put to
 * rest can be read afterwards.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Sandbox } from '@cay/sdk';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import type { LocalBackend } from '../../server/src/backends/local/local.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const COMMANDS = 6;
const BYTES = 1024 * 1024;
const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `output that has just been written${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let dir: string;
    let backend: LocalBackend;
    let server: RunningServer;
    beforeAll(async () => {
      dir = await mkdtemp('/tmp/cay-last-');
      await chmod(dir, 0o711);
      backend = await openLocal({ dir: join(dir, 'engine'), runtime: 'runc' });
      server = await serve({ backend, dataDir: join(dir, 'control'), port: 0, log: serverLog('silent') });
    });
    afterAll(async () => {
      await server.close();
      await (await openLocal({ dir: join(dir, 'engine') })).destroy();
      await rm(dir, { recursive: true, force: true });
    });

    it.each([
      ['stopped', (box: Sandbox) => box.stop({ graceMs: 0 })],
      ['rolled back', (box: Sandbox) => box.rollback('before')],
      ['archived', (box: Sandbox) => box.pause({ as: 'archived' })],
    ] as const)(
      'is there when the sandbox is %s at once',
      async (_, end) => {
        const connection = { url: server.url, apiKey: server.adminKey! };
        const box = await Sandbox.create({}, connection);
        await box.snapshot({ name: 'before' });
        const launched = await Promise.all(
          Array.from({ length: COMMANDS }, (_unused, index) =>
            box.launch(
              `head -c ${BYTES} /dev/zero | tr '\\0' ${index}; touch /home/user/written-${index}; exec sleep 1000`,
              {
                overflow: 'wait',
              },
            ),
          ),
        );
        await box.exec(`until [ $(ls /home/user | grep -c written) = ${COMMANDS} ]; do :; done`);
        await end(box);
        for (const { command } of launched) {
          const { outputBytes, keptFrom } = await box.command(command.id);
          expect({ outputBytes, keptFrom }).toEqual({ outputBytes: BYTES, keptFrom: 0 });
        }
        await box.kill();
      },
      60_000,
    );
  },
);
