/**
 * What programs in sandboxes get of the network, beside the machine's own loopback and the sandbox's own:
 * `node bench/egress-inside.ts runc runsc`. Needs root. The same Python program is the client everywhere, and the target is a
 * process of its own, so that the server's processor time is its own, too.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { openLocal } from '../server/src/backends/local/open-local.ts';
import { openWorld } from '../server/src/egress/testing/program.ts';
import { collect } from '../server/src/guest/collect.ts';

const run = promisify(execFile);
const NAME = 'target.example.org';

/** Serves on three ports: bytes without end, bytes that are counted, and an echo. Prints the ports. */
const TARGET = `
import socket, threading
def serve(handle):
    listener = socket.create_server(('127.0.0.1', 0), backlog=2048)
    def loop():
        while True:
            one, _ = listener.accept()
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=safe, args=(handle, one), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()
    return listener.getsockname()[1]
def safe(handle, one):
    try: handle(one)
    except OSError: pass
    one.close()
piece = memoryview(bytes(1 << 20))
def flood(one):
    one.recv(8)
    while True: one.sendall(piece)
def sink(one):
    room = bytearray(1 << 20)
    while one.recv_into(room): pass
def echo(one):
    while True:
        got = one.recv(65536)
        if not got: return
        one.sendall(got)
threading.stack_size(128 * 1024)
print(serve(flood), serve(sink), serve(echo), flush=True)
threading.Event().wait()
`;

/** Prints one line of JSON. */
const CLIENT = `
import json, socket, sys, time
name, flood, sink, echo, megabytes = sys.argv[1], *map(int, sys.argv[2:6])
def to(port):
    one = socket.create_connection((name, port))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one
out = {}
room = bytearray(1 << 20)
one = to(flood); one.sendall(b'\\0'); left = megabytes << 20; began = time.perf_counter()
while left > 0: left -= one.recv_into(room)
out['down'] = megabytes * 1.048576 / (time.perf_counter() - began); one.close()
one = to(sink); began = time.perf_counter()
for _ in range(megabytes): one.sendall(room)
one.shutdown(socket.SHUT_WR); one.recv(1)
out['up'] = megabytes * 1.048576 / (time.perf_counter() - began); one.close()
one = to(echo); one.sendall(b'\\0'); one.recv(1); times = []
for _ in range(2000):
    began = time.perf_counter(); one.sendall(b'x'); one.recv(1); times.append(time.perf_counter() - began)
times.sort(); out['p50'] = times[1000] * 1000; out['p99'] = times[1980] * 1000; one.close()
began = time.perf_counter()
for _ in range(300):
    one = to(echo); one.sendall(b'\\0'); one.recv(1); one.close()
out['perSecond'] = 300 / (time.perf_counter() - began)
many = []
began = time.perf_counter()
for _ in range(int(sys.argv[6])): many.append(to(echo))
for one in many: one.sendall(b'\\0')
for one in many: one.recv(1)
out['together'] = len(many); out['togetherMs'] = (time.perf_counter() - began) * 1000
print(json.dumps(out))
`;

interface Figures {
  down: number;
  up: number;
  p50: number;
  p99: number;
  perSecond: number;
  together: number;
  togetherMs: number;
}

const target = spawn('python3', ['-c', TARGET], { stdio: ['ignore', 'pipe', 'inherit'] });
const [line] = (await once(target.stdout, 'data')) as [Buffer];
const ports = line.toString().trim().split(' ').map(Number);
const MEGABYTES = Number(process.env['MEGABYTES'] ?? 1024);
const TOGETHER = 1000;
const argumentsFor = (name: string) => [name, ...ports, MEGABYTES, TOGETHER].map(String);

function show(
  what: string,
  { down, up, p50, p99, perSecond, together, togetherMs }: Figures,
  cpu?: number,
): void {
  const columns = [
    what.padEnd(28),
    `down ${down.toFixed(0)} MB/s`,
    `up ${up.toFixed(0)} MB/s`,
    `echo p50 ${p50.toFixed(3)} p99 ${p99.toFixed(3)} ms`,
    `${perSecond.toFixed(0)} connections/s`,
    `${together} at once in ${togetherMs.toFixed(0)} ms`,
    ...(cpu === undefined ? [] : [`server ${cpu.toFixed(2)} s of CPU for each GB`]),
  ];
  process.stdout.write(`${columns.join('  ')}\n`);
}

const loopback = await run('python3', ['-c', CLIENT, ...argumentsFor('127.0.0.1')]);
show('loopback of the machine', JSON.parse(loopback.stdout) as Figures);

for (const runtime of process.argv.slice(2)) {
  const dir = mkdtempSync('/tmp/cay-bench-egress-');
  chmodSync(dir, 0o711);
  const world = openWorld({ limits: { connectionsPerMinute: 1_000_000, connections: 2000 } });
  world.names.set(NAME, ['127.0.0.1']);
  const backend = await openLocal({ dir: join(dir, 'engine'), runtime, poolSize: 0, egress: world.egress });
  const id = newId('sbx');
  world.egress.policies.set(id, [
    { allow: [`${NAME}:*`, ...ports.map((port) => `${NAME}:${port}`)] },
    'public',
  ]);
  const limits = { cpus: null, memoryBytes: 1024 ** 3, diskBytes: null };
  await backend.ensure(id, SandboxSpecSchema.parse({ runtime, limits }));
  const guest = await backend.connect(id);
  const inside = async (script: string) => {
    const handle = await guest.exec({
      id: newId('cmd'),
      argv: ['sh', '-c', script],
      env: {},
      workdir: '/tmp',
      user: 'user',
    });
    const { stdout, stderr } = await collect(handle, { maxBytes: 65_536 });
    const text = stdout.toString();
    if (!text.includes('{')) throw new Error(stderr.toString());
    return JSON.parse(text.slice(text.indexOf('{'))) as Figures;
  };
  await guest.files('user').write('/tmp/client.py', Buffer.from(CLIENT));
  await guest.files('user').write('/tmp/target.py', Buffer.from(TARGET));
  const own = `python3 /tmp/target.py > /tmp/ports & until [ -s /tmp/ports ]; do sleep 0.1; done; python3 /tmp/client.py 127.0.0.1 $(cat /tmp/ports) ${MEGABYTES} 200; kill %1`;
  show(`${runtime}, its own loopback`, await inside(own));
  const before = process.cpuUsage();
  const figures = await inside(`python3 /tmp/client.py ${argumentsFor(NAME).join(' ')}`);
  const { user, system } = process.cpuUsage(before);
  show(`${runtime}, carried`, figures, (user + system) / 1e6 / ((2 * MEGABYTES * 1.048576) / 1000));
  await backend.remove(id);
  await backend.destroy();
  world.egress.close();
  rmSync(dir, { recursive: true, force: true });
}
target.kill();
