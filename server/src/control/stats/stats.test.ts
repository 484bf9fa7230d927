import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openStatRings, type KeptStats } from './stat-rings.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-stats-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const open = () => openStatRings({ directory, intervalMs: 1000, slots: 10 });
const reading = (atMs: number): KeptStats => ({
  atMs,
  cpuUsageMs: atMs / 10,
  memoryBytes: 5,
  memoryLimitBytes: null,
  pids: 1,
  diskBytes: null,
  diskLimitBytes: null,
  networkRxBytes: 0,
  networkTxBytes: null,
  diskReadBytes: null,
  diskWriteBytes: null,
});

describe('readings of the past', () => {
  it('are read again by the next server, and what is unknown is null and not 0', async () => {
    const id = newId('sbx');
    await open().write(id, reading(5000));
    await open().write(id, reading(6000));
    const range = { fromMs: 0, toMs: 10_000 };
    expect(await open().read(id, range)).toEqual([reading(5000), reading(6000)]);
    expect(await open().read(id, { fromMs: 5500, toMs: 10_000 })).toEqual([reading(6000)]);
    expect(await open().read(newId('sbx'), range)).toEqual([]);
  });

  it('take the place of the oldest, and the file does not grow', async () => {
    const id = newId('sbx');
    const rings = open();
    for (let second = 1; second <= 35; second++) await rings.write(id, reading(second * 1000));
    const kept = await rings.read(id, { fromMs: 0, toMs: 100_000 });
    expect(kept.map(({ atMs }) => atMs)).toEqual(Array.from({ length: 10 }, (_, at) => (26 + at) * 1000));
    expect(statSync(join(directory, readdirSync(directory)[0]!)).size).toBe(10 * 11 * 8);
  });

  it('go with their sandbox', async () => {
    const [id, gone] = [newId('sbx'), newId('sbx')];
    const rings = open();
    for (const each of [id, gone]) await rings.write(each, reading(1000));
    await rings.keepOnly(new Set([id]));
    expect(readdirSync(directory)).toEqual([`${id}.stats`]);
  });
});
