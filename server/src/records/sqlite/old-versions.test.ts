/** Data directories of every earlier schema version open, with everything in them. */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MIGRATIONS } from './migrations.ts';
import { openRecords } from '../open-records.ts';

const FIXTURES = join(import.meta.dirname, 'fixtures');
const fixture = (name: string) => readFileSync(join(FIXTURES, name), 'utf8');
const LINES = fixture('records.txt').split('\n');
const LAST = Number(LINES.find((line) => line.startsWith('last '))!.slice('last '.length));
const VERSIONS = Array.from({ length: LAST }, (_, index) => index + 1);

/** The dump of one version: the lines whose range has it. */
function dumpOf(version: number): string {
  return LINES.flatMap((line) => {
    const [, from, open, to, sql] = /^ *(\d+)(-?)(\d*)\| ?(.*)$/.exec(line) ?? [];
    if (from === undefined) return [];
    const until = to !== '' ? Number(to) : open === '-' ? LAST : Number(from);
    return Number(from) <= version && version <= until ? [sql] : [];
  }).join('\n');
}

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-old-'));
  writeFileSync(join(directory, 'secret.key'), `${Buffer.alloc(32, 7).toString('base64')}\n`, {
    mode: 0o600,
  });
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function create(file: string, sql: string): void {
  const sqlite = new DatabaseSync(join(directory, file));
  sqlite.exec(sql);
  sqlite.close();
}

describe('records of an earlier version', () => {
  it('have a fixture for every version but the last', () => {
    expect(LAST).toBe(MIGRATIONS.length - 1);
    expect(LINES.some((line) => line.trim().startsWith(`${LAST}`))).toBe(true);
  });

  it.each(VERSIONS)('of schema version %i open', async (version) => {
    create('records.db', dumpOf(version));
    create('events.db', fixture('events-v0.sql'));
    const records = await openRecords({ directory });
    expect(await records.projects.get('prj_1')).toMatchObject({ name: 'p', quota: { sandboxes: 3 } });
    expect(await records.keys.get('key_1')).toMatchObject({ role: 'admin', lastUsedAtMs: null });
    const sandbox = (await records.sandboxes.byName('prj_1', 'box'))!;
    expect(sandbox).toMatchObject({ incarnation: 3, onBoot: 'stay', turn: 0, labels: { a: 'b' } });
    if (version < 3) {
      const { pausedAs, idle, retention, base } = sandbox;
      expect({ pausedAs, idle, retention, base }).toEqual({
        pausedAs: null,
        idle: null,
        retention: null,
        base: null,
      });
      expect(await records.sandboxes.hasIdlePolicy()).toBe(false);
    }
    expect(sandbox.spec.env).toEqual({ SECRET: 'canary' });
    expect(Buffer.from(await records.secrets.get('e2b'))).toEqual(Buffer.alloc(32, 9));
    expect((await records.sandboxes.promised()).memoryBytes).toBe(7);
    if (version >= 3) {
      expect((await records.snapshots.byName('prj_1', sandbox.id, 's'))!.spec.env).toEqual({
        SECRET: 'canary',
      });
      expect(await records.templates.list('prj_1')).toHaveLength(1);
      expect(await records.forks.unmade()).toHaveLength(1);
    }
    if (version >= 4) {
      expect(await records.commands.running()).toHaveLength(1);
      expect(await records.webhooks.get('w')).toMatchObject({ deliveredTo: 2 });
    }
    if (version >= 5) expect(await records.builds.unfinished()).toHaveLength(1);
    expect(await records.tokenEpochs.ofProject('prj_1')).toBe(version >= 8 ? 2 : 0);
    expect((await records.events.list({})).map(({ type }) => type)).toEqual(
      version >= 6 ? ['old', 'older', 'promised'] : ['old', 'older'],
    );
    expect(await records.events.verify()).toMatchObject({ ok: true });
    const request = { sandbox: sandbox.id, holder: 'a', operation: 'stop', ttlMs: 1000 };
    expect(await records.leases.acquire(request)).toMatchObject({ fence: 1 });
    await records.close();
    // A second start finds the present version, and promises nothing twice.
    const again = await openRecords({ directory });
    expect(await again.events.list({})).toHaveLength(version >= 6 ? 3 : 2);
    await again.close();
    expect(readdirSync(directory)).toContain(`records.db.v${version}.bak`);
  });

  it('are refused if the server that wrote them is newer', async () => {
    create('records.db', 'PRAGMA user_version = 1000');
    await expect(openRecords({ directory })).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining('it was written by a newer version of Cay'),
    });
  });
});
