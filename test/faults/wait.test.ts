/**
 * A client that waits for a command reconnects when the server is killed, and gets the end from the next
 * server, also if the command ended while no server ran.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from '@cay/sdk';
import { describe, expect, it } from 'vitest';
import { ended, openCay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { killServing, startServing, type Serving } from '../support/serving.ts';
import { freePort } from '../support/free-ports.ts';

const reason = whyNoLocal();
const waitsFor = (file: string, exitCode: number) => [
  'sh',
  '-c',
  `until [ -e ${file} ]; do sleep 0.02; done; echo over; exit ${exitCode}`,
];

describe.skipIf(reason !== undefined)(
  `kill -9 of a server while clients wait${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    it('takes nothing from them but time', async () => {
      await using cay = await openCay({ CAY_RUNTIME: 'runc', CAY_LISTEN: `127.0.0.1:${await freePort()}` });
      let server = await startServing(cay.env);
      const connection = { url: server.url, apiKey: server.key };
      const create = (cmd: string[]) => Sandbox.create({ cmd }, connection);
      const [later, meanwhile, removed] = await Promise.all([
        create(waitsFor('/home/user/go', 7)),
        // Without a server no client can let it go on, so a timer does.
        create(['sh', '-c', 'until [ -e /home/user/go ]; do sleep 0.02; done; sleep 0.5; exit 9']),
        create(waitsFor('/never', 0)),
      ]);
      const { uid } = later.info;
      const waiting = [later, meanwhile, removed].map((sandbox) => sandbox.wait({ timeoutMs: 60_000 }));
      const found = await lookups(server);
      const onCommandLine = ended(cay.start('wait', later.id, '--timeout', '60s'));
      // It has found the sandbox, and waits from now on.
      await expect.poll(() => lookups(server), { timeout: 30_000 }).toBe(found + 1);
      await meanwhile.files.write('/home/user/go', '');
      await killServing(server);
      await sleep(1000);
      server = await startServing(cay.env);

      await removed.kill();
      await later.files.write('/home/user/go', '');
      expect(await waiting[0]).toMatchObject({
        outcome: 'completed',
        end: { kind: 'exited', exitCode: 7 },
        status: { uid, complete: true, active: 0, failed: 1 },
      });
      expect(await waiting[1]).toMatchObject({ outcome: 'completed', end: { kind: 'exited', exitCode: 9 } });
      expect(await waiting[2]).toMatchObject({
        outcome: 'lost',
        end: { kind: 'lost' },
        status: { phase: 'destroying', complete: true },
      });
      expect(await onCommandLine).toMatchObject({ code: 7, stdout: 'exited 7\n', stderr: '' });

      // What was recorded outlives the sandbox's processes and one more server.
      await later.stop({ graceMs: 0 });
      await killServing(server);
      const none = await later.wait({ timeoutMs: 300 }).catch((error: unknown) => error);
      expect(none).toMatchObject({ code: 'unavailable' });
      server = await startServing(cay.env);
      expect(await later.status()).toMatchObject({
        phase: 'stopped',
        complete: true,
        failed: 1,
        end: { exitCode: 7 },
      });
      expect(await later.wait()).toMatchObject({ outcome: 'completed', end: { exitCode: 7 } });
      await killServing(server, 'SIGTERM');
    }, 120_000);
  },
);

/** How often a sandbox was looked up. */
async function lookups({ url, key }: Serving): Promise<number> {
  const response = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  const line = /^cay_http_requests_total\{route="getSandbox",status="2xx"\} (\d+)$/m;
  return Number(line.exec(await response.text())?.[1] ?? 0);
}
