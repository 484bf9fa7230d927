/** What the bundle promises, looked at from inside as root and as a user. */
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { makeStage } from '../../../../test/conformance/runtime-suite.ts';
import { detectCgroups } from '../cgroups/detect.ts';
import { runcRuntime } from './runc.ts';
import { runscRuntime } from './runsc.ts';

/**
 * Stands in for the guest and for a command that it starts, without what the guest keeps to itself: tries
 * each thing and writes a line of `name=result`. The system calls have the numbers of x86-64.
 */
const TRIAL = `#!/usr/bin/python3
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
if sys.argv[-1] != 'command':
    libc.prctl(24, 21, 0, 0, 0)
    os.execv(sys.argv[0], [*sys.argv, 'command'])
out = open('/tmp/out', 'w')
def say(name, value): print(f'{name}={value}', file=out)
def call(name, number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    say(name, 'ok' if result >= 0 else os.strerror(ctypes.get_errno()))
def attempt(name, work):
    try: work(); say(name, 'ok')
    except OSError as error: say(name, error.strerror)
say('uid', os.getuid()); say('pid', os.getpid())
say('hostname', socket.gethostname())
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
say('capabilities', status['CapEff'].strip())
call('mount', 165, b'x', b'/tmp', b'tmpfs', 0, None)
call('setns', 308, 0, 0)
call('bpf', 321, 0, None, 0)
call('io_uring', 425, 8, None)
call('keyctl', 250, 0, 0)
attempt('vsock', lambda: socket.socket(40, 1))
attempt('raw', lambda: socket.socket(2, 3, 1))
attempt('packet', lambda: socket.socket(17, 3))
attempt('tcp', lambda: socket.socket(2, 1))
attempt('bind80', lambda: socket.socket(2, 1).bind(('127.0.0.1', 80)))
attempt('mknod', lambda: os.mknod('/tmp/null', 0o20666, os.makedev(1, 3)))
attempt('write_usr', lambda: open('/usr/x', 'w'))
attempt('write_socket_dir', lambda: open('/run/cay/x', 'w'))
attempt('write_sys', lambda: open('/sys/kernel/x', 'w'))
attempt('write_sysctl', lambda: open('/proc/sys/kernel/hostname', 'w'))
attempt('chown', lambda: (open('/tmp/f', 'w'), os.chown('/tmp/f', 1000, 1000)))
say('interfaces', ','.join(name for _, name in socket.if_nameindex()))
say('processes', len([name for name in os.listdir('/proc') if name.isdigit()]))
def as_user():
    os.setgroups([]); os.setgid(1000); os.setuid(1000)
    try: socket.socket(1, 1).connect('/run/cay/guest.sock'); os._exit(0)
    except OSError as error: os._exit(error.errno)
child = os.fork()
if child == 0: as_user()
say('user_connects', os.strerror(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
call('unshare_mount', 272, 0x20000)
call('unshare_user', 272, 0x10000000)
out.close()
os.rename('/tmp/out', '/tmp/done')
time.sleep(1000)
`;

const ids = { hostId: 1_000_000, size: 65_536 };
const dir = mkdtempSync(join(tmpdir(), 'cay-hardening-'));
chmodSync(dir, 0o711);
const prefix = `cay-test-hardening-${process.pid}`;
afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
  for (const hierarchy of readdirSync('/sys/fs/cgroup')) {
    const parent = join('/sys/fs/cgroup', hierarchy, prefix);
    if (existsSync(parent)) rmdirSync(parent);
  }
});

for (const factory of [runcRuntime, runscRuntime]) {
  const runtime = factory({ stateDir: join(dir, 'state'), ids });
  const probe = await runtime.probe();
  const title = probe.available
    ? `Inside a container of ${runtime.name}`
    : `Inside a container of ${runtime.name} (skipped: ${probe.reason})`;
  if (!probe.available) console.warn(title);

  describe.skipIf(!probe.available || process.arch !== 'x64')(title, () => {
    it('root rules its own files and nothing else', async () => {
      const guestBinary = join(dir, 'trial');
      writeFileSync(guestBinary, TRIAL, { mode: 0o755 });
      const cgroups = await detectCgroups({ prefix });
      const stage = await makeStage({
        dir: join(dir, runtime.name),
        name: `hard-${runtime.name}`,
        ids,
        cgroups,
        changes: { guestBinary },
      });
      const { container } = stage;
      try {
        await runtime.start(container);
        const done = join(container.rootDir, 'tmp/done');
        for (let tries = 0; !existsSync(done) && tries < 200; tries += 1) await sleep(50);
        const said = Object.fromEntries(
          readFileSync(done, 'utf8')
            .trim()
            .split('\n')
            .map((line) => line.split('=') as [string, string]),
        );
        expect(said).toMatchObject({
          uid: '0',
          pid: '1',
          processes: '1',
          hostname: container.hostname,
          capabilities: '00000000000405fb',
          interfaces: 'lo',
          tcp: 'ok',
          bind80: 'ok',
          chown: 'ok',
          write_socket_dir: 'Read-only file system',
          user_connects: 'Permission denied',
        });
        // With a kernel of its own a sandbox may have namespaces and settings there: they are none of the
        // host's.
        const shared =
          runtime.isolation === 'kernel' ? [] : ['unshare_mount', 'unshare_user', 'write_sysctl'];
        const refused = [
          ...shared,
          'mount',
          'setns',
          'bpf',
          'io_uring',
          'keyctl',
          'vsock',
          'raw',
          'packet',
          'mknod',
          'write_usr',
          'write_sys',
        ];
        expect(refused.filter((name) => said[name] === 'ok')).toEqual([]);
      } finally {
        await runtime.remove(container.name, container.cgroup);
        await stage.close();
      }
    });
  });
}
