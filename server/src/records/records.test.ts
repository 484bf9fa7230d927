import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { previewTokens } from '../control/tenants/preview-tokens.ts';
import { openDatabase, type Database } from './database.ts';
import { openEventLog } from '../control/events/event-log.ts';
import { keyRecords, requireKeyShape } from './keys.ts';
import { MIGRATIONS } from './migrations.ts';
import { projectRecords } from './projects.ts';
import { sandboxRecords } from './sandboxes.ts';
import { installationSecret } from './secrets.ts';

let directory: string;
let database: Database;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-records-'));
  database = openDatabase(join(directory, 'records.db'));
});
afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true, force: true });
});

describe('keys', () => {
  it('are found by their secret, which is stored nowhere', () => {
    const project = projectRecords(database).create('p');
    const keys = keyRecords(database);
    const { key, secret } = keys.create({ name: 'k', project: project.id, role: 'member' });
    expect(() => requireKeyShape(secret)).not.toThrow();
    expect(keys.find(secret)).toMatchObject({ id: key.id, project: project.id, role: 'member' });
    expect(keys.find(`${secret.slice(0, -1)}x`)).toBeUndefined();
    expect(JSON.stringify(database.all('SELECT * FROM keys'))).not.toContain(secret);
  });

  it('are of no use once revoked, also those used a moment ago', () => {
    const projects = projectRecords(database);
    const [one, two] = [projects.create('one'), projects.create('two')];
    const keys = keyRecords(database);
    const { key, secret } = keys.create({ name: 'k', project: one.id, role: 'member' });
    expect(keys.find(secret)).toBeDefined();
    expect(keys.revoke(key.id, two.id)).toBe(false);
    expect(keys.find(secret)).toBeDefined();
    expect(keys.revoke(key.id, one.id)).toBe(true);
    expect(keys.find(secret)).toBeUndefined();
    expect(keys.revoke(key.id)).toBe(false);
  });

  it('remember roughly when they were used', () => {
    let nowMs = 1000;
    const keys = keyRecords(database, () => nowMs);
    const { secret } = keys.create({
      name: 'k',
      project: projectRecords(database).create('p').id,
      role: 'admin',
    });
    keys.find(secret);
    nowMs += 1;
    keys.find(secret);
    expect(keys.list()[0]!.lastUsedAtMs).toBe(1000);
    nowMs += 60_000;
    keys.find(secret);
    expect(keys.list()[0]!.lastUsedAtMs).toBe(61_001);
  });
});

describe('the database', () => {
  it('undoes a transaction that fails, with all that is nested in it', () => {
    const projects = projectRecords(database);
    expect(() =>
      database.transaction(() => {
        database.transaction(() => projects.create('inner'));
        throw new Error('no');
      }),
    ).toThrow('no');
    expect(projects.list()).toEqual([]);
  });

  it('refuses records of a newer version', () => {
    const path = join(directory, 'newer.db');
    const sqlite = new DatabaseSync(path);
    sqlite.exec('PRAGMA user_version = 1000');
    sqlite.close();
    expect(() => openDatabase(path)).toThrow('it was written by a newer version of Cay');
  });

  it('keeps one secret for one name', () => {
    const secret = installationSecret(database, 'previews');
    expect(installationSecret(database, 'previews')).toEqual(secret);
    expect(installationSecret(database, 'other')).not.toEqual(secret);
  });
});

describe('preview tokens', () => {
  it('fit one sandbox and port of one installation', () => {
    const mine = previewTokens(installationSecret(database, 'previews'));
    const other = previewTokens(installationSecret(database, 'other'));
    const id = newId('sbx');
    const token = mine.token(id, 80);
    expect(mine.matches(id, 80, token)).toBe(true);
    for (const wrong of [
      mine.matches(id, 81, token),
      mine.matches(newId('sbx'), 80, token),
      other.matches(id, 80, token),
      mine.matches(id, 80, ''),
      mine.matches(id, 80, `${token}x`),
    ]) {
      expect(wrong).toBe(false);
    }
  });
});

describe('the event log', () => {
  it('gives what is kept and then what happens, once and in order', async () => {
    const log = openEventLog(join(directory, 'events.db'));
    for (let i = 0; i < 2500; i++) log.append({ type: 'old', project: i % 2 ? 'a' : 'b' });
    const seen: number[] = [];
    const abort = new AbortController();
    const reading = (async () => {
      for await (const event of log.follow({ after: 0, project: 'a', signal: abort.signal })) {
        seen.push(event.id);
        if (event.type === 'last') abort.abort();
      }
    })();
    log.append({ type: 'new', project: 'a' });
    await new Promise((resolve) => setImmediate(resolve));
    log.append({ type: 'last', project: 'a' });
    await reading;
    expect(seen).toHaveLength(1252);
    expect(new Set(seen).size).toBe(1252);
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    log.close();
  });
});

describe('sandboxes of an earlier version', () => {
  it('are read with what has come since left as it was', () => {
    const path = join(directory, 'old.db');
    const old = new DatabaseSync(path);
    for (const sql of MIGRATIONS.slice(0, 2)) old.exec(sql);
    const id = newId('sbx');
    old.exec(`
      INSERT INTO projects VALUES ('p', 'p', '{}', 1);
      INSERT INTO sandboxes VALUES ('${id}', 'p', 'box', 'active', NULL, NULL, 'memory', 'memory', '{"template":"base"}', '{}', '[]', NULL, 'stop', NULL, 3, 1, 2);
      PRAGMA user_version = 2;
    `);
    old.close();
    const opened = openDatabase(path);
    const sandboxes = sandboxRecords(opened);
    expect(sandboxes.get(id)).toMatchObject({
      name: 'box',
      onTimeout: 'stop',
      incarnation: 3,
      pausedAs: null,
      idle: null,
      retention: null,
      onBoot: 'stay',
      base: null,
      turn: 0,
    });
    expect(sandboxes.hasIdlePolicy()).toBe(false);
    opened.close();
  });
});
