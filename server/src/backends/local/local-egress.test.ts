/** What programs of a sandbox on this machine reach, through the guest and an egress of the test. */
import { setTimeout as sleep } from 'node:timers/promises';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { makeBox, type Box } from '../../../../test/conformance/box.ts';
import { egressSuite } from '../../../../test/conformance/egress.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { egressWorld, type EgressWorld } from '../../../../test/conformance/egress-world.ts';
import type { LocalBackend } from './local.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();

describe.skipIf(reason !== undefined).each(['runc', 'runsc'])(
  `egress of the local backend${reason ? ` (skipped: ${reason})` : ''} on %s`,
  (runtime) => {
    egressSuite(
      async (egress) => {
        const world = await localWorld({ runtime, egress });
        return {
          backend: await world.open(),
          spec: SandboxSpecSchema.parse({ runtime, user: 'root' }),
          restart: () => world.open(),
          cleanup: () => world.destroy(),
        };
      },
      // gVisor cannot restore the memory of a sandbox that redirects.
      { any: runtime === 'runc' },
    );
  },
);

/** Prints which of the things that the guest had to do to set the redirect up still can be done. */
const RIGHTS = String.raw`
import ctypes, errno, socket, struct
def can(what, attempt):
    try:
        attempt()
        print(what, "can")
    except OSError as error:
        print(what, errno.errorcode[error.errno])
def netlink(protocol, message):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    s.settimeout(3)
    s.send(message)
    code = struct.unpack("i", s.recv(4096)[16:20])[0]
    if code: raise OSError(-code, "refused")
address = struct.pack("BBBBIHH4sHH4s", 2, 32, 0, 0, 1, 8, 1, bytes([10, 0, 0, 1]), 8, 2, bytes([10, 0, 0, 1]))
can("address", lambda: netlink(0, struct.pack("IHHII", 16 + len(address), 20, 0x405, 1, 0) + address))
can("rules", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
can("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6))
can("tables", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255))
can("transparent", lambda: socket.socket().setsockopt(0, 19, 1))
def namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x50000000): raise OSError(ctypes.get_errno(), "unshare")
def bound():
    for line in open("/proc/self/status"):
        if line.startswith("Cap") and int(line.split()[1], 16) & (1 << 12 | 1 << 13): return True
    return False
print("bound", bound())
for line in open("/proc/1/status"):
    if line.startswith("Cap") and int(line.split()[1], 16) & (1 << 12 | 1 << 13): print("guest has", line)
# Last, because a namespace of its own has all rights, over itself alone.
can("namespace", namespace)
`;

describe.skipIf(reason !== undefined).each(['runc', 'runsc'])(
  `the wall around egress${reason ? ` (skipped: ${reason})` : ''} on %s`,
  (runtime) => {
    let outside: EgressWorld;
    let world: LocalWorld;
    let backend: LocalBackend;
    let box: Box;

    beforeAll(async () => {
      outside = await egressWorld();
      world = await localWorld({ runtime, egress: outside.egress });
      backend = await world.open();
      const id = await world.box(backend);
      box = makeBox(id, await backend.connect(id), '/home/user');
    }, 60_000);
    afterAll(async () => {
      await world.destroy();
      await outside.close();
    }, 60_000);

    it('nobody inside, root included, has a right that the guest had', async () => {
      const { stdout, stderr } = await box.run(['python3', '-c', RIGHTS], { user: 'root' });
      expect(stderr).toBe('');
      const said = new Map(
        stdout
          .trim()
          .split('\n')
          .map((line) => line.split(' ', 2) as [string, string]),
      );
      // gVisor takes the option for transparent sockets from anybody, and ignores it. It lets anybody make
      // namespaces, which are its own and reach nothing.
      if (runtime === 'runsc') for (const what of ['transparent', 'namespace']) said.delete(what);
      for (const what of said.keys().filter((key) => key !== 'bound'))
        expect([what, said.get(what)]).toEqual([
          what,
          expect.stringMatching(/^(EPERM|EACCES|EPROTONOSUPPORT|ENOPROTOOPT|EOPNOTSUPP|ENOSYS|EINVAL)$/),
        ]);
      expect(said.get('bound')).toBe('False');
      expect(said.has('guest')).toBe(false);
    });

    it('a frozen sandbox keeps its connections', async () => {
      const program = `import socket, time
s = socket.create_connection(("echo.test", 7))
for n in range(40):
  s.sendall(b"%02d" % n)
  assert s.recv(2) == b"%02d" % n
  time.sleep(0.05)
print("all")`;
      const running = box.run(['python3', '-c', program]);
      await sleep(800);
      await backend.freeze(box.id);
      await sleep(1_500);
      await backend.thaw(box.id);
      expect(await running).toMatchObject({ exitCode: 0, stdout: 'all\n', stderr: '' });
    }, 30_000);

    it('ends when a server without egress takes over, and comes back with one that has it', async () => {
      const reach = () => box.run('curl -sS -m 5 http://web.test/');
      expect((await reach()).stdout).toBe('hello web.test/');
      await backend.close();
      backend = await world.open({}, (parts) => ({
        ...parts,
        resources: { ...parts.resources, egress: undefined },
      }));
      box = makeBox(box.id, await backend.connect(box.id), '/home/user');
      expect((await reach()).exitCode).toBe(6);
      expect((await box.run('curl -sS -m 5 http://192.0.2.80/')).exitCode).toBe(7);
      await backend.close();
      backend = await world.open();
      box = makeBox(box.id, await backend.connect(box.id), '/home/user');
      expect((await reach()).stdout).toBe('hello web.test/');
    }, 60_000);
  },
);

describe.skipIf(reason !== undefined)(`egress of a fork${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let outside: EgressWorld;
  let world: LocalWorld;
  afterEach(async () => {
    await world.destroy();
    await outside.close();
  });

  it('with memory goes on under its own name, and carried connections end on both sides', async () => {
    outside = await egressWorld();
    world = await localWorld({ runtime: 'runsc', egress: outside.egress });
    const backend = await world.open();
    const id = await world.box(backend);
    const box = makeBox(id, await backend.connect(id), '/home/user');
    const program = `import socket, time
held = socket.create_connection(("silent.test", 1))
held.settimeout(30)
print("up", flush=True)
try: print("data" if held.recv(1) else "ended", flush=True)
except OSError as error: print(type(error).__name__, flush=True)
while True:
  try:
    s = socket.create_connection(("echo.test", 7), 5)
    s.sendall(b"x")
    print("ok" if s.recv(1) == b"x" else "ended", flush=True)
  except OSError as error: print(type(error).__name__, flush=True)
  time.sleep(0.1)`;
    await box.write('/tmp/program.py', program);
    await (await box.start('exec python3 /tmp/program.py > /tmp/out 2>&1'))[Symbol.asyncDispose]();
    await box.run('while [ ! -s /tmp/out ]; do sleep 0.05; done');
    const snapshot = newId('snap');
    await backend.snapshot(id, snapshot, { memory: true });
    const fork = newId('sbx');
    await backend.clone(fork, world.spec, snapshot, { memory: true });
    await backend.ensure(fork, world.spec);
    for (const one of [id, fork]) {
      const there = makeBox(one, await backend.connect(one), '/home/user');
      await there.run('for i in $(seq 100); do grep -q ok /tmp/out && break; sleep 0.1; done');
      expect([one, (await there.run('sed -n 2p /tmp/out')).stdout]).toEqual([one, 'ConnectionResetError\n']);
      expect([one, (await there.run('tail -1 /tmp/out')).stdout]).toEqual([one, 'ok\n']);
      expect((await there.run('curl -sS http://web.test/')).stdout).toBe('hello web.test/');
    }
    const sandboxes = new Set(outside.egress.targets.map(({ sandbox }) => sandbox));
    expect(sandboxes).toEqual(new Set([id, fork]));
  }, 60_000);
});
