import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Cgroup, Cgroups } from './cgroup.ts';
import { detectCgroups } from './detect.ts';

const prefix = `cay-test-cgroups-${process.pid}`;
const cgroups: Cgroups = await detectCgroups({ prefix });
const real = cgroups.version === 'v1';
const MIB = 1024 * 1024;
const none = { cpus: null, memoryBytes: null, pids: null };

function removePrefix(): void {
  for (const hierarchy of readdirSync('/sys/fs/cgroup')) {
    const dir = join('/sys/fs/cgroup', hierarchy, prefix);
    if (existsSync(dir)) rmdirSync(dir);
  }
}

/** Starts a program inside the group. */
function inside(group: Cgroup, script: string): ChildProcess {
  const join_ = group.joinPaths.map((dir) => `echo 0 > ${dir}/cgroup.procs`).join('; ');
  return spawn('sh', ['-c', `${join_}; ${script}`], { stdio: ['ignore', 'pipe', 'ignore'] });
}

async function firstOutput(child: ChildProcess): Promise<string> {
  const [data] = (await once(child.stdout!, 'data')) as [Buffer];
  return data.toString();
}

describe.skipIf(!real)(
  `Cgroups version 1, on the kernel of this machine${real ? '' : ' (skipped: it has version 2)'}`,
  () => {
    afterAll(removePrefix);
    const file = (controller: string, name: string, control: string) =>
      readFileSync(join('/sys/fs/cgroup', controller, prefix, name, control), 'utf8').trim();

    it('create() writes the limits, again with others changes them, and remove() leaves nothing', async () => {
      const group = cgroups.group('limits');
      await group.create({ cpus: 0.5, memoryBytes: 64 * MIB, pids: 20 });
      expect(file('cpu', 'limits', 'cpu.cfs_quota_us')).toBe('50000');
      expect(file('memory', 'limits', 'memory.limit_in_bytes')).toBe(String(64 * MIB));
      expect(file('pids', 'limits', 'pids.max')).toBe('20');
      expect(await cgroups.list()).toEqual(['limits']);
      await group.create(none);
      expect(file('cpu', 'limits', 'cpu.cfs_quota_us')).toBe('-1');
      expect(Number(file('memory', 'limits', 'memory.limit_in_bytes'))).toBeGreaterThan(2 ** 50);
      expect(file('pids', 'limits', 'pids.max')).toBe('max');
      await group.remove();
      await group.remove();
      expect(await cgroups.list()).toEqual([]);
    });

    it('update() changes the given limits and leaves the rest', async () => {
      const group = cgroups.group('update');
      await group.create({ cpus: 1, memoryBytes: 64 * MIB, pids: 20 });
      await group.update({ memoryBytes: 128 * MIB });
      expect(file('memory', 'update', 'memory.limit_in_bytes')).toBe(String(128 * MIB));
      await group.update({ memoryBytes: 32 * MIB, cpus: 0.25 });
      expect(file('memory', 'update', 'memory.limit_in_bytes')).toBe(String(32 * MIB));
      expect(file('cpu', 'update', 'cpu.cfs_quota_us')).toBe('25000');
      expect(file('pids', 'update', 'pids.max')).toBe('20');
      await group.remove();
    });

    it('update() rejects less memory than is in use, and the old limit holds', async () => {
      const group = cgroups.group('busy');
      await group.create({ ...none, memoryBytes: 256 * MIB });
      const child = inside(
        group,
        `exec python3 -c 'import time; x = b"1" * ${100 * MIB}; print("ready", flush=True); time.sleep(60)'`,
      );
      await firstOutput(child);
      const reading = await group.read();
      expect(reading.memoryBytes).toBeGreaterThan(100 * MIB);
      expect(reading.pids).toBe(1);
      expect(reading.cpuUsageMs).toBeGreaterThan(0);
      await expect(group.update({ memoryBytes: 32 * MIB })).rejects.toMatchObject({
        code: 'failed_precondition',
      });
      expect(file('memory', 'busy', 'memory.limit_in_bytes')).toBe(String(256 * MIB));
      await group.remove();
    });

    it('counts processes that were killed for want of memory', async () => {
      const group = cgroups.group('oom');
      await group.create({ ...none, memoryBytes: 64 * MIB });
      const child = inside(group, `exec python3 -c 'x = b"1" * ${200 * MIB}'`);
      const [, signal] = await once(child, 'exit');
      expect(signal).toBe('SIGKILL');
      expect((await group.read()).oomKills).toBe(1);
      await group.remove();
    });

    it('freeze() stops everything until thaw(), and kill() ends frozen processes', async () => {
      const group = cgroups.group('frozen');
      await group.create(none);
      const child = inside(group, 'while :; do echo tick; sleep 0.01; done');
      await firstOutput(child);
      await group.freeze();
      child.stdout!.read();
      const before = (await group.read()).cpuUsageMs;
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect((await group.read()).cpuUsageMs).toBe(before);
      await group.thaw();
      await firstOutput(child);
      await group.freeze();
      const exit = once(child, 'exit');
      await group.kill();
      await exit;
      expect(await group.processes()).toEqual([]);
      await group.remove();
    });

    it('freeze() stops processes that start others all the time, every time', async () => {
      const group = cgroups.group('forking');
      await group.create(none);
      const loop = 'while :; do sleep 0.001; done';
      const child = inside(group, `echo ready; (${loop}) & (${loop}) & ${loop}`);
      await firstOutput(child);
      for (let round = 0; round < 200; round++) {
        const from = performance.now();
        await group.freeze();
        expect(performance.now() - from, `round ${round}`).toBeLessThan(2_000);
        await group.thaw();
        await new Promise((resolve) => setTimeout(resolve, 3));
      }
      await group.remove();
    });

    it('kill() ends processes that fork without end, and keeps the limits', async () => {
      const group = cgroups.group('forks');
      await group.create({ ...none, pids: 60 });
      const child = inside(group, 'f() { echo forked; f & f & wait; }; f 2>/dev/null');
      await firstOutput(child);
      const exit = once(child, 'exit');
      await group.kill();
      await exit;
      expect(await group.processes()).toEqual([]);
      expect(file('pids', 'forks', 'pids.max')).toBe('60');
      await group.remove();
    });

    it('kill() and processes() of a group that does not exist are done', async () => {
      const group = cgroups.group('absent');
      await group.kill();
      expect(await group.processes()).toEqual([]);
    });

    it('remove() takes away what a runtime made in hierarchies that we do not use', async () => {
      const group = cgroups.group('joined');
      await group.create(none);
      const others = readdirSync('/sys/fs/cgroup').map((hierarchy) =>
        join('/sys/fs/cgroup', hierarchy, prefix, 'joined'),
      );
      for (const dir of others) mkdirSync(dir, { recursive: true });
      await group.remove();
      expect(others.filter((dir) => existsSync(dir))).toEqual([]);
    });

    it('remove() ends a process that comes while it is at work', async () => {
      const group = cgroups.group('late');
      await group.create(none);
      // Joins one hierarchy over and over, for as long as there is something to join.
      const child = spawn(
        'sh',
        ['-c', `echo ready; while echo 0 > ${group.joinPaths[0]}/cgroup.procs; do :; done; sleep 60`],
        {
          stdio: ['ignore', 'pipe', 'ignore'],
        },
      );
      const exit = once(child, 'exit');
      await firstOutput(child);
      await group.remove();
      expect(await cgroups.list()).toEqual([]);
      child.kill('SIGKILL');
      await exit;
    });

    it('destroy() ends everything and takes the parent group away, everywhere', async () => {
      const group = cgroups.group('last');
      await group.create(none);
      const child = inside(group, 'echo ready; sleep 60');
      const exit = once(child, 'exit');
      await firstOutput(child);
      await cgroups.destroy();
      await exit;
      const parents = readdirSync('/sys/fs/cgroup').map((hierarchy) =>
        join('/sys/fs/cgroup', hierarchy, prefix),
      );
      expect(parents.filter((dir) => existsSync(dir))).toEqual([]);
      await cgroups.destroy();
    });
  },
);
