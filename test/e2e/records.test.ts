/** Audit, webhooks and backups as users have them, on a server without sandboxes of its own. */
import { readFile, rm, writeFile, mkdtemp } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { AuditEvent, AuditVerdict, Webhook } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { openCay } from '../support/cay.ts';

const env = { CAY_BACKEND: 'memory' };

describe('cay audit', () => {
  it('verifies and exports, and finds what was changed while no server ran', async () => {
    await using cay = await openCay(env);
    expect((await cay.run('up', '--detach')).code).toBe(0);
    await cay.run('key', 'create', 'robot');
    const verdict = await cay.json<AuditVerdict>('audit', 'verify');
    expect(verdict).toMatchObject({ ok: true, sealed: true });
    const shown = await cay.run('audit', 'verify');
    expect(shown.stdout).toContain(verdict.head);
    const exported = await cay.run('audit', 'export', '--type', 'key.created', '--since', '2020-01-01');
    const events = exported.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as AuditEvent);
    expect(events).toMatchObject([{ type: 'key.created', data: { name: 'robot' }, hash: verdict.head }]);
    expect((await cay.run('audit', 'export', '--since', 'soon')).code).toBe(64);

    await cay.run('down');
    expect(await cay.json<AuditVerdict>('audit', 'verify')).toMatchObject({
      ok: true,
      head: verdict.head,
      sealed: true,
    });
    const sqlite = new DatabaseSync(join(cay.dataDir, 'control/events.db'));
    sqlite.exec(`UPDATE events SET data = replace(data, 'robot', 'human') WHERE id = ${events[0]!.id}`);
    sqlite.close();
    const broken = await cay.run('audit', 'verify');
    expect(broken.code).not.toBe(0);
    expect(broken.stderr).toContain(`broken at event ${events[0]!.id}`);
  }, 60_000);
});

describe('cay backup', () => {
  it('is taken from a server that goes on, verified, and restored into another', async () => {
    const directory = await mkdtemp('/tmp/cay-e2e-backup-');
    const file = join(directory, 'cay.tar');
    const keyless = join(directory, 'without-key.tar');
    let keys: { id: string; name: string }[];
    {
      await using cay = await openCay(env);
      await cay.run('up', '--detach');
      await cay.run('key', 'create', 'robot');
      keys = await cay.json('key', 'ls');
      await cay.run('backup', keyless);
      const taken = await cay.run('backup', '--with-key', file);
      expect(taken).toMatchObject({ code: 0, stdout: expect.stringContaining('ok') });
      expect((await cay.run('backup', '--verify', file)).code).toBe(0);
      expect((await cay.run('up', '--restore', file)).code).not.toBe(0);
    }
    {
      await using other = await openCay(env);
      const refused = await other.run('up', '--detach', '--restore', keyless);
      expect(refused.code).not.toBe(0);
      expect(refused.stderr).toMatch(
        /The key [0-9a-f]{12} that the records in .* are sealed with is missing/,
      );
      const up = await other.run('up', '--detach', '--restore', file);
      expect(up, up.stderr).toMatchObject({ code: 0 });
      const names = (await other.json<{ name: string; id: string }[]>('key', 'ls')).map(({ id }) => id);
      for (const { id } of keys) expect(names).toContain(id);
      expect(await other.json<AuditVerdict>('audit', 'verify')).toMatchObject({ ok: true, sealed: true });
    }
    const content = await readFile(file);
    content[content.length - 5000]! ^= 1;
    await writeFile(file, content);
    await using third = await openCay(env);
    expect(await third.run('backup', '--verify', file)).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('not a whole backup'),
    });
    await rm(directory, { recursive: true, force: true });
  }, 60_000);
});

describe('cay webhook', () => {
  it('adds, tests, lists and removes', async () => {
    const server = createServer((request, response) =>
      request.resume().on('end', () => response.writeHead(204).end()),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    await using cay = await openCay(env);
    await cay.run('up', '--detach', '--webhook-private');
    const added = await cay.run('webhook', 'add', url, '--type', 'sandbox.*', '--type', 'key.created');
    expect(added.stdout).toMatch(/^whsec_[\w-]{43}\n$/);
    const [webhook] = await cay.json<Webhook[]>('webhook', 'ls');
    expect(webhook).toMatchObject({ url, types: ['sandbox.*', 'key.created'] });
    expect((await cay.run('webhook', 'test', webhook!.id)).stdout).toContain('it answered 204');
    server.close();
    server.closeAllConnections();
    expect(await cay.run('webhook', 'test', webhook!.id)).toMatchObject({
      stderr: expect.stringContaining('nothing listens there'),
    });
    expect((await cay.run('webhook', 'ls')).stdout).toContain(webhook!.id);
    await cay.run('webhook', 'rm', webhook!.id);
    expect(await cay.json('webhook', 'ls')).toEqual([]);
  }, 60_000);
});
