/**
 * Attempts that wait for an answer, as people meet them: the command line, a callback of the SDK, a webhook.
 */
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ended, openCay, printed, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { openEgressServer, type EgressServer } from './egress-server.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `approvals${reason ? ` (skipped: ${reason})` : ''}`,
  { timeout: 120_000 },
  () => {
    const dir = mkdtempSync('/tmp/cay-ask-');
    chmodSync(dir, 0o711);
    const told: { type: string; data: Record<string, unknown> }[] = [];
    let served: EgressServer;
    let web: Server;
    let port: number;
    let access: { url: string; apiKey: string };
    let cay: Cay;

    beforeAll(async () => {
      web = createServer((request, response) => {
        if (request.method !== 'POST') return void response.end('hello from outside\n');
        let body = '';
        request.on('data', (chunk: Buffer) => (body += chunk.toString()));
        request.on('end', () => {
          told.push((JSON.parse(body) as { event: (typeof told)[number] }).event);
          response.end();
        });
      }).listen(0, '127.0.0.1');
      await once(web, 'listening');
      ({ port } = web.address() as AddressInfo);
      served = await openEgressServer({
        dir,
        runtime: 'runc',
        names: ['one', 'two', 'three', 'four', 'hook'].map((label) => `${label}.example.org`),
        webhooks: { allowPrivate: true },
      });
      ({ access } = served);
      cay = await openCay({ CAY_URL: access.url, CAY_API_KEY: access.apiKey });
      const made = await fetch(`${access.url}/v1/webhooks`, {
        method: 'POST',
        headers: { authorization: `Bearer ${access.apiKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ url: `http://127.0.0.1:${port}/`, types: ['network.*'] }),
      });
      expect(made.status).toBe(201);
    }, 120_000);
    afterAll(async () => {
      web.closeAllConnections();
      web.close();
      await served.destroy();
      rmSync(cay.dataDir, { recursive: true, force: true });
    }, 120_000);

    const get = (name: string) => `curl -sS -m 50 http://${name}.example.org:${port}/`;
    async function pendingOf(box: string): Promise<{ id: string; rule: string }[]> {
      for (let tries = 0; tries < 100; tries++) {
        const found = await cay.json<{ id: string; rule: string }[]>('net', 'pending', box);
        if (found.length > 0) return found;
      }
      throw new Error('nothing waits');
    }

    it('the command line lists what waits, and approves and refuses it', async () => {
      await cay.json('create', '--name', 'asks', '--runtime', 'runc', '--network', 'ask');
      const log = cay.start('net', 'log', '-f', 'asks');
      const first = cay.run('exec', 'asks', '--', 'sh', '-c', get('one'));
      const [asked] = await pendingOf('asks');
      expect(asked!.rule).toBe(`one.example.org:${port}`);
      // People read the table, with what would be allowed.
      expect((await cay.run('net', 'pending', 'asks')).stdout).toContain(`one.example.org:${port}`);
      expect(await cay.run('net', 'approve', 'asks', asked!.id, '--for', '1h')).toMatchObject({ code: 0 });
      expect(await first).toMatchObject({ code: 0, stdout: 'hello from outside\n' });
      // It stays allowed, and nobody is asked again.
      expect(await cay.run('exec', 'asks', '--', 'sh', '-c', get('one'))).toMatchObject({ code: 0 });
      const second = cay.run('exec', 'asks', '--', 'sh', '-c', get('two'));
      const [other] = await pendingOf('asks');
      expect(await cay.run('net', 'refuse', 'asks', other!.id)).toMatchObject({ code: 0 });
      const refused = await second;
      expect(refused.code).not.toBe(0);
      expect(refused.stderr).toContain(`denied: two.example.org:${port}; allow it with: cay net allow asks`);
      expect(await cay.run('net', 'approve', 'asks', other!.id)).toMatchObject({
        code: expect.any(Number) as number,
        stderr: expect.stringContaining('waits for an answer') as string,
      });
      await printed(log, /denied \(not_approved\)/);
      log.kill();
      await ended(log);
      const shown = (await cay.run('net', 'log', 'asks')).stdout;
      expect(shown).toMatch(/allowed\s+one\.example\.org/);
      expect(shown).toMatch(/denied \(not_approved\)\s+two\.example\.org/);
      expect((await cay.run('net', 'show', 'asks')).stdout).toContain('ask');
    });

    it('a webhook is told what waits', async () => {
      await expect.poll(() => told.map(({ type }) => type), { timeout: 20_000 }).toContain('network.asked');
      const asked = told.find(({ type }) => type === 'network.asked')!;
      expect(asked.data).toMatchObject({
        approval: expect.any(String) as string,
        target: `one.example.org:${port}`,
        rule: `one.example.org:${port}`,
      });
    });

    it('a callback of the SDK answers, and leaves to others what it has no answer for', async () => {
      await using sandbox = await Sandbox.create({ runtime: 'runc', network: 'ask' }, access);
      const stop = new AbortController();
      const asked: string[] = [];
      const answering = sandbox.network.onAsked(
        ({ rule }) => {
          asked.push(rule);
          if (rule.startsWith('three')) return { verdict: 'allow', forMs: 60_000 };
          return rule.startsWith('four') ? 'deny' : undefined;
        },
        { signal: stop.signal, everyMs: 100 },
      );
      expect(await sandbox.exec(get('three'))).toMatchObject({ stdout: 'hello from outside\n' });
      expect((await sandbox.exec(get('four'))).denied).toMatchObject([{ reason: 'not_approved' }]);
      const left = sandbox.exec(get('one'));
      await expect.poll(() => asked, { timeout: 20_000 }).toContain(`one.example.org:${port}`);
      const [one] = await sandbox.network.pending();
      await sandbox.network.answer(one!.id, 'deny');
      expect((await left).exitCode).not.toBe(0);
      // Nobody is asked twice for the same attempt.
      expect(asked).toEqual(['three', 'four', 'one'].map((name) => `${name}.example.org:${port}`));
      stop.abort();
      await answering;
    });

    it('what a callback throws ends the answering', async () => {
      await using sandbox = await Sandbox.create({ runtime: 'runc', network: 'ask' }, access);
      const answering = sandbox.network.onAsked(
        () => {
          throw new Error('no idea');
        },
        { everyMs: 100 },
      );
      const left = sandbox.exec(get('one'));
      await expect(answering).rejects.toThrow('no idea');
      const [one] = await sandbox.network.pending();
      await sandbox.network.answer(one!.id, 'deny');
      await left;
    });
  },
);
