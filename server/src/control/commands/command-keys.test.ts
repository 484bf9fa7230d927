import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { commandKeys } from './command-keys.ts';
import { openDatabase, type Database } from '../../records/database.ts';
import { projectRecords } from '../../records/projects.ts';

let directory: string;
let database: Database;
const reopen = () => openDatabase(join(directory, 'records.db'));

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-command-keys-'));
  database = reopen();
  const project = projectRecords(database).create('p');
  database.run(
    `INSERT INTO sandboxes (id, project, state, backend, spec, labels, ports, on_timeout, incarnation, created_at)
     VALUES ('sbx', ?, 'active', 'memory', '{}', '{}', '[]', 'destroy', 0, 0)`,
    project.id,
  );
});
afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true, force: true });
});

describe('commandKeys()', () => {
  it('knows after a restart which commands were claimed and which were started', () => {
    const keys = commandKeys(database);
    keys.claim('sbx', 'claimed', { argv: ['a'] }, 'cmd_1');
    keys.claim('sbx', 'started', { argv: ['b'] }, 'cmd_2');
    keys.started('sbx', 'started');
    database.close();
    database = reopen();
    const later = commandKeys(database);
    expect(later.claim('sbx', 'claimed', { argv: ['a'] }, 'cmd_3')).toEqual({ id: 'cmd_1', started: false });
    expect(later.claim('sbx', 'started', { argv: ['b'] }, 'cmd_3')).toEqual({ id: 'cmd_2', started: true });
    expect(() => later.claim('sbx', 'started', { argv: ['a'] }, 'cmd_3')).toThrow(
      'was used for another request',
    );
  });

  it('lets go of keys whose command was refused, and never of one that was started', () => {
    const keys = commandKeys(database);
    for (const key of ['refused', 'started']) keys.claim('sbx', key, {}, `cmd_${key}`);
    keys.started('sbx', 'started');
    for (const key of ['refused', 'started']) keys.release('sbx', key);
    expect(keys.claim('sbx', 'refused', { other: 1 }, 'cmd_new')).toEqual({ id: 'cmd_new', started: false });
    expect(keys.claim('sbx', 'started', {}, 'cmd_new')).toEqual({ id: 'cmd_started', started: true });
  });

  it('forgets with the sandbox, and after a week', () => {
    let nowMs = 0;
    const keys = commandKeys(database, { now: () => nowMs });
    keys.claim('sbx', 'old', {}, 'cmd_1');
    nowMs = 8 * 24 * 3600 * 1000;
    keys.claim('sbx', 'new', {}, 'cmd_2');
    expect(keys.claim('sbx', 'old', {}, 'cmd_3')).toEqual({ id: 'cmd_3', started: false });
    database.run("DELETE FROM sandboxes WHERE id = 'sbx'");
    expect(database.all('SELECT * FROM command_keys')).toEqual([]);
    expect(() => keys.claim('sbx', 'new', {}, 'cmd_4')).toThrow('Sandbox "sbx" does not exist');
  });
});
