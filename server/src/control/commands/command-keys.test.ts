import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sandboxRow } from '../../../../test/conformance/records-rows.ts';
import { openRecords } from '../../records/open-records.ts';
import type { Records } from '../../records/records.ts';
import { openCommandKeys } from './command-keys.ts';

let directory: string;
let records: Records;
let sandbox: string;
let nowMs: number;
const reopen = () => openRecords({ directory, now: () => nowMs });
const keysOf = (on: Records) => openCommandKeys(on, { counts() {}, requireRoom: async () => {} });

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cay-command-keys-'));
  nowMs = 1;
  records = await reopen();
  const row = sandboxRow((await records.projects.create('p')).id);
  sandbox = row.id;
  await records.sandboxes.insert(row);
});
afterEach(async () => {
  await records.close();
  rmSync(directory, { recursive: true, force: true });
});

describe('keys of commands', () => {
  it('are known after a restart: which commands were claimed and which were started', async () => {
    const keys = keysOf(records);
    await keys.claim(sandbox, 'claimed', { argv: ['a'] }, 'cmd_1');
    await keys.claim(sandbox, 'started', { argv: ['b'] }, 'cmd_2');
    await keys.started(sandbox, 'started');
    await records.close();
    records = await reopen();
    const later = keysOf(records);
    expect(await later.claim(sandbox, 'claimed', { argv: ['a'] }, 'cmd_3')).toEqual({
      id: 'cmd_1',
      started: false,
    });
    expect(await later.claim(sandbox, 'started', { argv: ['b'] }, 'cmd_3')).toEqual({
      id: 'cmd_2',
      started: true,
    });
    await expect(later.claim(sandbox, 'started', { argv: ['a'] }, 'cmd_3')).rejects.toThrow(
      'was used for another request',
    );
  });

  it('are let go of if their command was refused, and never if it was started', async () => {
    const keys = keysOf(records);
    for (const key of ['refused', 'started']) await keys.claim(sandbox, key, {}, `cmd_${key}`);
    await keys.started(sandbox, 'started');
    for (const key of ['refused', 'started']) await keys.release(sandbox, key);
    expect(await keys.claim(sandbox, 'refused', { other: 1 }, 'cmd_new')).toEqual({
      id: 'cmd_new',
      started: false,
    });
    expect(await keys.claim(sandbox, 'started', {}, 'cmd_new')).toEqual({ id: 'cmd_started', started: true });
  });

  it('claim one command, also if they are used at the same time', async () => {
    const keys = keysOf(records);
    const claims = await Promise.all(
      Array.from({ length: 20 }, (_, number) => keys.claim(sandbox, 'k', {}, `cmd_${number}`)),
    );
    expect(new Set(claims.map(({ id }) => id)).size).toBe(1);
  });

  it('are refused beyond the quota, and none is recorded', async () => {
    const full = openCommandKeys(records, {
      counts() {},
      requireRoom: () => Promise.reject(new Error('full')),
    });
    await expect(full.claim(sandbox, 'k', {}, 'cmd_1')).rejects.toThrow('full');
    expect(await keysOf(records).claim(sandbox, 'k', { other: 1 }, 'cmd_2')).toEqual({
      id: 'cmd_2',
      started: false,
    });
  });

  it('are forgotten with the sandbox, and after a week', async () => {
    const keys = keysOf(records);
    await keys.claim(sandbox, 'old', {}, 'cmd_1');
    nowMs = 8 * 24 * 3600 * 1000;
    await keys.claim(sandbox, 'new', {}, 'cmd_2');
    expect(await keys.claim(sandbox, 'old', {}, 'cmd_3')).toEqual({ id: 'cmd_3', started: false });
    const { project } = (await records.sandboxes.get(sandbox))!;
    expect(await records.commandKeys.count(project)).toBe(2);
    await records.sandboxes.delete(sandbox);
    expect(await records.commandKeys.count(project)).toBe(0);
    await expect(keys.claim(sandbox, 'new', {}, 'cmd_4')).rejects.toThrow(
      `Sandbox "${sandbox}" does not exist`,
    );
  });
});
