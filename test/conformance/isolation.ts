import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { until } from './box.ts';
import { kernelCases } from './isolation-kernel.ts';
import { echoServer } from './ports.ts';
import { rejects, type Suite } from './suite.ts';

export function isolationCases(suite: Suite): void {
  suite.share();

  suite.inBox('files of the host cannot be seen, by commands or by files', ['isolation'], async (box) => {
    const places = await Promise.all(
      [tmpdir(), homedir()].map((parent) => mkdtemp(join(parent, 'cay-canary-'))),
    );
    try {
      for (const place of places) await writeFile(join(place, 'canary'), 'host');
      for (const path of [...places, ...(suite.platform.hostPaths ?? [])]) {
        expect((await box.run(['ls', path], { user: box.strongest })).exitCode, path).not.toBe(0);
        await rejects(box.root.stat(path), 'not_found', 'permission_denied');
      }
    } finally {
      for (const place of places) await rm(place, { recursive: true });
    }
  });

  suite.inBox("only the sandbox's own processes can be seen", ['isolation', 'processes'], async (box) => {
    const seen = await box.run(
      `cat /proc/[0-9]*/cmdline | tr '\\000' ' '; echo; ls -d /proc/[0-9]* | wc -l`,
      { user: box.strongest },
    );
    expect(seen.stdout).not.toContain('vitest');
    expect(Number(seen.stdout.trim().split('\n').at(-1))).toBeLessThan(32);
  });

  suite.inBox('there is no network interface but lo', ['isolation', 'processes'], async (box) => {
    const lines = (await box.run(['cat', '/proc/net/dev'])).stdout.trim().split('\n').slice(2);
    const names = lines.map((line) => line.split(':')[0]!.trim());
    expect(names.filter((name) => name !== 'lo')).toEqual([]);
  });

  suite.inBox('no process inside can mount', ['isolation', 'processes'], async (box) => {
    for (const user of ['user', box.strongest]) {
      expect((await box.run('mount -t tmpfs none /mnt', { user, workdir: '/' })).exitCode).not.toBe(0);
      expect((await box.run('mount -o remount,rw /proc', { user, workdir: '/' })).exitCode).not.toBe(0);
    }
  });

  suite.inBox('root inside cannot change the kernel', ['isolation', 'processes'], async (box) => {
    // Each would be harmless if it worked: help is printed, and a value is written back as it was.
    expect((await box.run('echo h > /proc/sysrq-trigger', { user: box.strongest })).exitCode).not.toBe(0);
    const same = 'f=/proc/sys/kernel/core_pattern; v=$(cat $f) && echo "$v" > $f';
    expect((await box.run(same, { user: box.strongest })).exitCode).not.toBe(0);
  });

  suite.inBox(
    'the user has no capability, and root none to mount, load modules or reboot',
    ['isolation', 'processes'],
    async (box) => {
      const effective = async (user: string) => {
        const status = (await box.run(['cat', '/proc/self/status'], { user })).stdout;
        return BigInt(`0x${/CapEff:\s*([0-9a-f]+)/.exec(status)![1]}`);
      };
      expect(await effective('user')).toBe(0n);
      const [SYS_MODULE, SYS_RAWIO, SYS_ADMIN, SYS_BOOT] = [16n, 17n, 21n, 22n];
      const root = await effective(box.strongest);
      for (const capability of [SYS_MODULE, SYS_RAWIO, SYS_ADMIN, SYS_BOOT])
        expect((root >> capability) & 1n, `capability ${capability}`).toBe(0n);
    },
  );

  suite.inBox('a set-uid program gives the user nothing', ['isolation', 'processes'], async (box) => {
    await box.run(
      `cp "$(command -v id)" ${box.dir}/id && chown root ${box.dir}/id && chmod 4755 ${box.dir}/id`,
      { user: box.strongest },
    );
    expect((await box.run([`${box.dir}/id`, '-u'])).stdout.trim()).not.toBe('0');
  });

  suite.inBox('root inside is not root on the host', ['isolation', 'processes'], async (box, { skip }) => {
    if (!suite.platform.mapsUsers) return skip('the runtime maps no users that could be seen from inside');
    const [inside, outside] = (await box.run(['cat', '/proc/self/uid_map'])).stdout.trim().split(/\s+/);
    expect(inside).toBe('0');
    expect(outside).not.toBe('0');
  });

  suite.inBox('PID 1 cannot be killed from inside', ['isolation', 'processes'], async (box) => {
    await box.run('kill -9 1; kill -TERM 1');
    await box.run('kill -TERM 1; kill -INT 1', { user: box.strongest });
    expect((await box.run(['true'])).exitCode).toBe(0);
    expect((await suite.backend.observe(box.id)).phase).toBe('ready');
  });

  suite.case(
    'root inside that kills PID 1 ends at most its own sandbox, which can be started again',
    ['isolation', 'processes'],
    async () => {
      const box = await suite.box();
      await box.write('kept', 'kept');
      // The kernel of Linux shields PID 1 from this; gVisor's does not.
      await box.run('kill -9 1', { user: box.strongest }).catch(() => undefined);
      await until('it is seen', async () => {
        const { phase, reason } = await suite.backend.observe(box.id);
        const answers =
          phase === 'ready' &&
          (await box.run(['true']).then(
            ({ end }) => end.kind === 'exited',
            () => false,
          ));
        return answers || (phase === 'failed' && reason === 'crashed');
      });
      await suite.backend.ensure(box.id, suite.spec());
      const files = (await suite.backend.connect(box.id)).files('user');
      expect((await files.stat(`${box.dir}/kept`)).sizeBytes).toBe(4);
    },
  );

  suite.inBox('one sandbox does not see the files of another', [], async (box) => {
    const other = await suite.box();
    await other.files.write('/tmp/mine', Buffer.from('mine'));
    await rejects(box.root.stat('/tmp/mine'), 'not_found');
    await rejects(box.root.stat(`${other.dir}/mine`), 'not_found');
  });

  suite.inBox(
    'one sandbox does not see the processes of another',
    ['isolation', 'processes'],
    async (box) => {
      const other = await suite.box();
      await other.start(['sleep', '60'], { env: { MARK: 'other' } });
      const seen = await box.run(`cat /proc/[0-9]*/cmdline | tr '\\000' ' '`, { user: box.strongest });
      expect(seen.stdout).not.toContain('sleep 60');
    },
  );

  suite.inBox(
    'one sandbox does not reach the ports of another',
    ['isolation', 'ports'],
    async (box, context) => {
      const other = await suite.box();
      const server = await echoServer(suite, other, context);
      await rejects(box.guest.ports.connect(server.port), 'unavailable');
      await (await other.guest.ports.connect(server.port))[Symbol.asyncDispose]();
    },
  );

  suite.inBox('commands of one sandbox are unknown to another', [], async (box) => {
    const other = await suite.box();
    const running = await other.start(['sleep', '60'], { id: 'of-the-other' });
    await rejects(box.guest.attach(running.id), 'not_found');
    await rejects(box.guest.signal(running.id, 'SIGKILL'), 'not_found');
  });

  suite.inBox('devices of the host are not there', ['isolation', 'processes'], async (box) => {
    const names = (await box.run(['ls', '/dev'], { user: box.strongest })).stdout.split('\n');
    expect(names.filter((name) => /^(sd|vd|nvme|loop|dm-|kvm|mem|kmsg|port)/.test(name))).toEqual([]);
  });

  kernelCases(suite);
}
