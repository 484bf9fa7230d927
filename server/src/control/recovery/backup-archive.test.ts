import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { mkdir, readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { backup, restoreBackup, sweepBackups, verifyBackup } from './backup-archive.ts';
import { openRecords } from '../../records/open-records.ts';
import type { Records } from '../../records/records.ts';
import { MIGRATIONS } from '../../records/sqlite/migrations.ts';

let directory: string;
let records: Records;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cay-backups-'));
  records = await openRecords({ directory });
});
afterEach(async () => {
  await records.close();
  rmSync(directory, { recursive: true, force: true });
});

async function take(path: string, { withKey = true } = {}): Promise<void> {
  const keyFile = withKey ? join(directory, 'secret.key') : undefined;
  const chunks = await Array.fromAsync(
    await backup({ records, version: '1.2.3' }, { scratch: directory, keyFile }),
  );
  await writeFile(path, Buffer.concat(chunks));
}

describe('a backup', () => {
  it('is whole though records and events are written meanwhile', async () => {
    const { projects, events } = records;
    for (let i = 0; i < 3000; i++) await events.append({ type: 'x', data: { text: 'y'.repeat(500) } });
    await projects.create('before');
    const path = join(directory, 'backup.tar');
    let busy = true;
    const writing = (async () => {
      for (let i = 0; busy; i++) {
        await projects.create(`p${i}`);
        await events.append({ type: 'during' });
        await turn();
      }
    })();
    await take(path);
    busy = false;
    await writing;
    const facts = await verifyBackup(path);
    expect(facts).toMatchObject({ version: '1.2.3', withKey: true, audit: { ok: true, sealed: true } });
    expect(facts.audit.events).toBeGreaterThanOrEqual(3000);

    const restored = join(directory, 'restored', 'control');
    await restoreBackup(path, restored);
    const again = await openRecords({ directory: restored });
    expect(await again.projects.byName('before')).toBeDefined();
    expect(await again.secrets.get('audit')).toEqual(await records.secrets.get('audit'));
    await again.events.append({ type: 'after' });
    expect(await again.events.verify()).toMatchObject({ ok: true, events: facts.audit.events + 1 });
    await again.close();
    expect((await stat(join(restored, 'records.db'))).mode & 0o777).toBe(0o600);
    await expect(restoreBackup(path, restored)).rejects.toMatchObject({ code: 'failed_precondition' });
    expect(await readdir(join(directory, 'restored'))).toEqual(['control']);
  });

  it('is refused when it is damaged anywhere, cut off, or something else', async () => {
    await records.events.append({ type: 'x' });
    const path = join(directory, 'backup.tar');
    await take(path);
    const whole = await readFile(path);
    const bad = join(directory, 'bad.tar');
    const places = [3, 600, 700, 1600, 5000, Math.floor(whole.length / 2), whole.length - 6000];
    for (const at of places) {
      const copy = Buffer.from(whole);
      copy[at]! ^= 0x20;
      await writeFile(bad, copy);
      await expect(verifyBackup(bad), `byte ${at}`).rejects.toMatchObject({ code: 'invalid_argument' });
    }
    for (const content of [
      whole.subarray(0, whole.length / 2),
      whole.subarray(0, 100),
      Buffer.alloc(0),
      Buffer.from('nonsense'),
    ]) {
      await writeFile(bad, content);
      await expect(verifyBackup(bad)).rejects.toMatchObject({ code: 'invalid_argument' });
      await expect(restoreBackup(bad, join(directory, 'new'))).rejects.toMatchObject({
        code: 'invalid_argument',
      });
      expect(existsSync(join(directory, 'new'))).toBe(false);
    }
    await expect(verifyBackup(join(directory, 'none.tar'))).rejects.toMatchObject({ code: 'not_found' });
  });

  it('has the key that it is sealed with only when told to, and is of no use without', async () => {
    const secret = await records.secrets.get('e2b');
    await records.events.append({ type: 'x' });
    const path = join(directory, 'backup.tar');
    await take(path, { withKey: false });
    const key = await readFile(join(directory, 'secret.key'), 'utf8');
    expect((await readFile(path)).includes(key.trim())).toBe(false);
    expect(await verifyBackup(path)).toMatchObject({ withKey: false, audit: { ok: true, sealed: false } });
    expect(await verifyBackup(path, directory)).toMatchObject({ audit: { ok: true, sealed: true } });

    const restored = join(directory, 'restored');
    await expect(restoreBackup(path, restored)).rejects.toThrow('that the records in');
    expect(existsSync(restored)).toBe(false);
    await mkdir(restored);
    await writeFile(join(restored, 'secret.key'), randomBytes(32).toString('base64'));
    await expect(restoreBackup(path, restored)).rejects.toThrow('are sealed with key');
    await writeFile(join(restored, 'secret.key'), key);
    await restoreBackup(path, restored);
    const again = await openRecords({ directory: restored });
    expect(Buffer.from(await again.secrets.get('e2b'))).toEqual(Buffer.from(secret));
    await again.close();
  });

  it('leaves nothing behind, also when no client reads it', async () => {
    const stream = (await backup({ records, version: '1' }, { scratch: directory }))[Symbol.asyncIterator]();
    await stream.next();
    await stream.return?.();
    const gone = new AbortController();
    await backup({ records, version: '1' }, { scratch: directory, signal: gone.signal });
    gone.abort();
    // A server that was killed in between.
    await backup({ records, version: '1' }, { scratch: directory });
    await sweepBackups(directory);
    expect((await readdir(directory)).filter((name) => name.startsWith('.backup-'))).toEqual([]);
  });
});

describe('records of an earlier version', () => {
  it('are kept as they were when they are taken further', async () => {
    const place = join(directory, 'old');
    await mkdir(place);
    const path = join(place, 'records.db');
    const old = new DatabaseSync(path);
    old.exec(MIGRATIONS[0]!);
    old.exec("PRAGMA user_version = 1; INSERT INTO projects VALUES ('prj_1', 'old', '{}', 1)");
    old.close();
    await (await openRecords({ directory: place })).close();
    const copy = new DatabaseSync(`${path}.v1.bak`, { readOnly: true });
    expect(copy.prepare('PRAGMA user_version').get()).toEqual({ user_version: 1 });
    expect(copy.prepare('SELECT name FROM projects').all()).toEqual([{ name: 'old' }]);
    copy.close();
    const now = new DatabaseSync(path, { readOnly: true });
    expect(now.prepare('PRAGMA user_version').get()).toEqual({ user_version: MIGRATIONS.length });
    now.close();
    expect(existsSync(`${path}.v${MIGRATIONS.length}.bak`)).toBe(false);
  });
});
