import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { cgroupsV2, cpuMax, unreclaimable } from './v2.ts';

describe('Cgroups version 2, on plain files that stand for the kernel', () => {
  const mount = mkdtempSync(join(tmpdir(), 'cay-cgroup2-'));
  const dir = join(mount, 'cay', 'g');
  const cgroups = cgroupsV2({ mount, prefix: 'cay', controllers: new Set(['cpu', 'memory', 'pids']) });
  const group = cgroups.group('g');
  const text = (file: string) => readFileSync(join(dir, file), 'utf8');
  const files: Record<string, string> = {
    'cgroup.procs': '',
    'cgroup.freeze': '',
    'cgroup.events': 'populated 0\nfrozen 1\n',
    'cpu.max': '',
    'cpu.stat': 'usage_usec 1234567\nuser_usec 1\n',
    'memory.max': '',
    'memory.swap.max': '',
    'memory.current': '5000\n',
    'memory.stat': 'anon 3000\ninactive_file 1000\nactive_file 500\n',
    'memory.events': 'low 0\noom 3\noom_kill 2\n',
    'pids.max': '',
    'pids.current': '7\n',
  };
  const fake = () => {
    mkdirSync(dir, { recursive: true });
    for (const [name, content] of Object.entries(files)) writeFileSync(join(dir, name), content);
  };
  afterEach(() => rmSync(dir, { recursive: true, force: true }));
  afterAll(() => rmSync(mount, { recursive: true, force: true }));

  it('tells the runtime and the guest where the group is', () => {
    expect(group.ociPath).toBe('/cay/g');
    expect(group.joinPaths).toEqual([dir]);
    expect(group.memoryPath).toBe(dir);
  });

  it('create() writes every limit, with no swap beside the memory', async () => {
    fake();
    await group.create({ cpus: 1.5, memoryBytes: 65_536, pids: 10 });
    expect([text('cpu.max'), text('memory.max'), text('memory.swap.max'), text('pids.max')]).toEqual([
      '150000 100000',
      '65536',
      '0',
      '10',
    ]);
    expect(await cgroups.list()).toEqual(['g']);
  });

  it('update() writes only the given limits', async () => {
    fake();
    await group.update({ pids: null });
    expect([text('cpu.max'), text('memory.max'), text('pids.max')]).toEqual(['', '', 'max']);
  });

  it('update() rejects less memory than is in use, because the kernel would kill', async () => {
    fake();
    await expect(group.update({ memoryBytes: 3_000 })).rejects.toMatchObject({ code: 'failed_precondition' });
    expect(text('memory.max')).toBe('');
    await group.update({ memoryBytes: 3_500 });
    expect(text('memory.max')).toBe('3500');
  });

  it('read() takes the numbers from the files of the kernel', async () => {
    fake();
    expect(await group.read()).toEqual({ cpuUsageMs: 1234, memoryBytes: 4000, pids: 7, oomKills: 2 });
  });

  it('freeze() waits until the kernel says so', async () => {
    fake();
    await group.freeze();
    expect(text('cgroup.freeze')).toBe('1');
  });

  it('rejects limits that no controller enforces, and lets the others pass', async () => {
    fake();
    const few = cgroupsV2({ mount, prefix: 'cay', controllers: new Set(['pids']) }).group('g');
    await expect(few.update({ memoryBytes: 1 })).rejects.toMatchObject({ code: 'unsupported' });
    await few.update({ memoryBytes: null, pids: 3 });
    expect(few.memoryPath).toBeUndefined();
    expect(text('pids.max')).toBe('3');
  });

  it('destroy() takes the parent group away with all groups', async () => {
    mkdirSync(join(dir, 'below'), { recursive: true });
    await cgroups.destroy();
    expect(existsSync(join(mount, 'cay'))).toBe(false);
    await cgroups.destroy();
  });

  it('cpuMax() never falls below what the kernel takes', () => {
    expect(cpuMax(null)).toBe('max 100000');
    fc.assert(
      fc.property(fc.double({ min: 0.001, max: 512, noNaN: true }), (cpus) => {
        const [quota, period] = cpuMax(cpus).split(' ').map(Number);
        expect(quota).toBeGreaterThanOrEqual(1000);
        expect(Number.isInteger(quota)).toBe(true);
        expect(period).toBe(100_000);
      }),
    );
  });

  it('unreclaimable() does not count copies of files', () => {
    expect(unreclaimable(5000, files['memory.stat']!)).toBe(3500);
  });
});
