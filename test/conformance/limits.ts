import { expect } from 'vitest';
import { all, inPieces, until, within, type Box } from './box.ts';
import { rejects, type Suite } from './suite.ts';

const MiB = 1024 * 1024;
const BUSY = 'while :; do :; done';

export function limitCases(suite: Suite): void {
  /** How many cores the sandbox used over a second. */
  async function coresUsed(box: Box): Promise<number> {
    const before = await suite.backend.stats(box.id);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const after = await suite.backend.stats(box.id);
    return (after.cpuUsageMs - before.cpuUsageMs) / (after.atMs - before.atMs);
  }

  suite.case('two busy loops stay within half a core', ['processes', 'cpuLimit'], async () => {
    const box = await suite.box({ limits: { cpus: 0.5 } });
    await box.start(BUSY);
    await box.start(BUSY);
    expect(await coresUsed(box)).toBeLessThanOrEqual(0.8);
  });

  suite.case(
    'a fork bomb is stopped, and the sandbox answers afterwards',
    ['processes', 'pidsLimit'],
    async () => {
      const box = await suite.box({ limits: { pids: 64 } });
      const bomb = await box.run('bomb() { bomb | bomb & }; bomb; sleep 60', { timeoutMs: 1500 });
      expect(bomb.end.kind).not.toBe('lost');
      await until('the sandbox answers', () =>
        box.run(['true']).then(
          ({ exitCode }) => exitCode === 0,
          () => false,
        ),
      );
      expect((await suite.backend.observe(box.id)).phase).toBe('ready');
    },
  );

  suite.case('more processes than allowed cannot be started', ['processes', 'pidsLimit'], async () => {
    const box = await suite.box({ limits: { pids: 32 } });
    const line = 'i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; echo all';
    const ran = await box.run(['sh', '-c', line], { timeoutMs: 5000 });
    expect(ran.stdout).not.toContain('all');
  });

  suite.case('a write beyond the disk is resource_exhausted and leaves nothing', ['diskLimit'], async () => {
    const box = await suite.box({ limits: { diskBytes: 48 * MiB } });
    await box.write('kept', 'kept');
    await rejects(
      box.files.write(`${box.dir}/big`, inPieces(Buffer.alloc(96 * MiB), MiB)),
      'resource_exhausted',
    );
    await until('only the old file is left', async () => (await all(box.files.list(box.dir))).length === 1);
    expect((await box.read('kept')).toString()).toBe('kept');
    // The filesystem gives back what was removed a moment later.
    await until('there is room again', () =>
      box.write('small', 'fits again').then(
        () => true,
        () => false,
      ),
    );
    expect((await box.run(['true'])).exitCode).toBe(0);
  });

  suite.case(
    'a command that fills the disk fails, and what it frees can be used again',
    ['diskLimit'],
    async () => {
      const box = await suite.box({ limits: { diskBytes: 48 * MiB } });
      const ran = await box.run('head -c 100663296 /dev/zero > big');
      expect(ran.end.kind).toBe('exited');
      expect(ran.exitCode).not.toBe(0);
      expect((await box.files.stat(`${box.dir}/big`)).sizeBytes).toBeLessThanOrEqual(48 * MiB);
      await box.files.remove(`${box.dir}/big`);
      await until('there is room again', () =>
        box.write('small', Buffer.alloc(MiB)).then(
          () => true,
          () => false,
        ),
      );
    },
  );

  suite.case(
    'a subvolume of its own does not get around the disk limit',
    ['isolation', 'processes', 'diskLimit'],
    async ({ skip }) => {
      const box = await suite.box({ limits: { diskBytes: 48 * MiB } });
      if ((await box.run('command -v btrfs')).exitCode !== 0) skip('there is no btrfs command inside');
      await box.run(
        `btrfs subvolume create ${box.dir}/own; head -c 100663296 /dev/zero > ${box.dir}/own/big`,
      );
      const size = await box.files.stat(`${box.dir}/own/big`).then(
        ({ sizeBytes }) => sizeBytes,
        () => 0,
      );
      expect(size).toBeLessThanOrEqual(48 * MiB);
    },
  );

  suite.case(
    'a process has as many open files as allowed, and cannot raise that',
    ['processes', 'openFilesLimit'],
    async () => {
      const box = await suite.box({ limits: { openFiles: 100 } });
      expect((await box.run('ulimit -n; ulimit -Hn')).stdout).toBe('100\n100\n');
      expect((await box.run('ulimit -n 200')).exitCode).not.toBe(0);
    },
  );

  suite.case(
    'memory can be resized up and down while the sandbox runs',
    ['processes', 'memoryLimit', 'resize'],
    async ({ skip }) => {
      const { backend } = suite;
      const resizing = backend.ability('resize');
      if (!resizing) return skip('the backend has no resize()');
      const box = await suite.box({ limits: { memoryBytes: 96 * MiB } });
      // tail keeps that much in memory, and is killed if it may not.
      const hog = () =>
        within(25_000, 'the hog', box.run('head -c 200000000 /dev/zero | tail -c 150000000 | wc -c'));
      expect((await hog()).stdout.trim()).not.toBe('150000000');
      await resizing.resize(box.id, { memoryBytes: 512 * MiB });
      expect((await backend.stats(box.id)).memoryLimitBytes).toBe(512 * MiB);
      expect((await hog()).stdout.trim()).toBe('150000000');
      await resizing.resize(box.id, { memoryBytes: 96 * MiB });
      expect((await hog()).stdout.trim()).not.toBe('150000000');
      expect((await box.run(['true'])).exitCode).toBe(0);
    },
    60_000,
  );

  suite.case(
    'cores can be resized up and down while the sandbox runs',
    ['processes', 'cpuLimit', 'resize'],
    async ({ skip }) => {
      const { backend } = suite;
      const resizing = backend.ability('resize');
      if (!resizing) return skip('the backend has no resize()');
      const box = await suite.box({ limits: { cpus: 0.1 } });
      await box.start(BUSY);
      await box.start(BUSY);
      expect(await coresUsed(box)).toBeLessThanOrEqual(0.3);
      await resizing.resize(box.id, { cpus: 2 });
      expect(await coresUsed(box)).toBeGreaterThan(0.15);
      await resizing.resize(box.id, { cpus: 0.1 });
      // The quota of the period that was under way may still be used up.
      await new Promise((resolve) => setTimeout(resolve, 200));
      expect(await coresUsed(box)).toBeLessThanOrEqual(0.3);
    },
  );

  suite.case(
    'resize() rejects not_found for the absent and invalid_argument for nonsense',
    ['resize'],
    async ({ skip }) => {
      const { backend } = suite;
      const resizing = backend.ability('resize');
      if (!resizing) return skip('the backend has no resize()');
      await rejects(resizing.resize(suite.id(), { cpus: 1 }), 'not_found');
      const box = await suite.box();
      await rejects(resizing.resize(box.id, { memoryBytes: -1 }), 'invalid_argument');
      await rejects(resizing.resize(box.id, { cpus: 0 }), 'invalid_argument');
    },
  );

  suite.case('limits that were resized hold in the next incarnation', ['resize'], async ({ skip }) => {
    const { backend } = suite;
    const resizing = backend.ability('resize');
    if (!resizing) return skip('the backend has no resize()');
    const box = await suite.box({ limits: { memoryBytes: 256 * MiB } });
    await resizing.resize(box.id, { memoryBytes: 512 * MiB });
    await backend.stop(box.id, { graceMs: 100 });
    await backend.ensure(box.id, suite.spec({ limits: { memoryBytes: 512 * MiB } }));
    expect((await backend.stats(box.id)).memoryLimitBytes).toBe(512 * MiB);
  });

  suite.case('a read-only root can be written only where it is meant to be', ['readOnlyRoot'], async () => {
    const id = suite.id();
    await suite.backend.ensure(id, suite.spec({ readOnlyRoot: true, workdir: '/tmp' }));
    const guest = await suite.backend.connect(id);
    const root = guest.files(suite.strongest);
    for (const path of ['/etc/file', '/usr/file', '/home/user/file', '/file']) {
      const error = await rejects(root.write(path, Buffer.from('x')), 'permission_denied');
      // A user that is not root may get EACCES first, because it does not own the directory.
      expect(suite.strongest === 'root' ? ['EROFS'] : ['EROFS', 'EACCES']).toContain(error.details['errno']);
    }
    for (const path of ['/tmp/file', '/run/file', '/dev/shm/file']) await root.write(path, Buffer.from('x'));
  });

  suite.case('stats() are plausible, and counters grow', [], async () => {
    const box = await suite.box();
    const first = await suite.backend.stats(box.id);
    expect(Math.abs(first.atMs - Date.now())).toBeLessThan(60_000);
    expect(first.memoryLimitBytes).toBe(suite.spec().limits.memoryBytes);
    expect(first.oomKills).toBe(0);
    await box.run('head -c 50000000 /dev/zero | wc -c');
    const second = await suite.backend.stats(box.id);
    expect(second.cpuUsageMs).toBeGreaterThanOrEqual(first.cpuUsageMs);
    expect(second.atMs).toBeGreaterThanOrEqual(first.atMs);
  });

  suite.case('stats() show what a running command uses', ['processes'], async () => {
    const box = await suite.box();
    const before = await suite.backend.stats(box.id);
    await box.start(BUSY);
    await until(
      'CPU time was used',
      async () => (await suite.backend.stats(box.id)).cpuUsageMs > before.cpuUsageMs + 50,
    );
    const after = await suite.backend.stats(box.id);
    expect(after.memoryBytes).toBeGreaterThan(0);
    expect(after.pids).toBeGreaterThan(0);
  });
}
