/**
 * What programs in sandboxes get of the network, beside the machine's own loopback and the sandbox's own:
 * `node bench/egress-inside.ts runc runsc`. Needs root. The same Python program is the client everywhere, and the target is a
 * process of its own, so that the server's processor time is its own, too.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
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
import json, os, socket, sys, time
name, flood, sink, echo, megabytes, together = sys.argv[1], *map(int, sys.argv[2:7])
phase = sys.argv[7]
def guest():
    fields = open('/proc/1/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
def to(port):
    one = socket.create_connection((name, port))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one
out = {}
room = bytearray(1 << 20)
before = guest()
def down():
    one = to(flood); one.sendall(b'\\0'); left = megabytes << 20; began = time.perf_counter()
    while left > 0: left -= one.recv_into(room)
    one.close(); return began
def up():
    one = to(sink); began = time.perf_counter()
    for _ in range(megabytes): one.sendall(room)
    one.shutdown(socket.SHUT_WR); one.recv(1); one.close(); return began
if phase in ('down', 'up'):
    began = down() if phase == 'down' else up()
    seconds = time.perf_counter() - began
    print(json.dumps({'rate': megabytes * 1.048576 / seconds, 'guest': guest() - before}))
    sys.exit()
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
for _ in range(together): many.append(to(echo))
for one in many: one.sendall(b'\\0')
for one in many: one.recv(1)
out['together'] = len(many); out['togetherMs'] = (time.perf_counter() - began) * 1000
print(json.dumps(out))
`;

interface Bulk {
  /** MB/s. */
  rate: number;
  /** Seconds of the processor that the guest has used; of PID 1, whoever that is. */
  guest: number;
}

interface Small {
  p50: number;
  p99: number;
  perSecond: number;
  together: number;
  togetherMs: number;
}

type Client = (host: string, phase: string, together?: number) => Promise<unknown>;

const target = spawn('python3', ['-c', TARGET], { stdio: ['ignore', 'pipe', 'inherit'] });
const [line] = (await once(createInterface({ input: target.stdout }), 'line')) as [string];
const ports = line.trim().split(' ').map(Number);
const MEGABYTES = Number(process.env['MEGABYTES'] ?? 1024);
const PHASES = (process.env['PHASES'] ?? 'down,up,small').split(',');
const TOGETHER = 1000;
const GIGABYTES = (MEGABYTES * 1.048576) / 1000;

async function measure(what: string, client: Client, host: string, carried: boolean, together = TOGETHER) {
  const columns = [what.padEnd(24)];
  for (const phase of ['down', 'up'].filter((one) => PHASES.includes(one))) {
    const before = process.cpuUsage();
    const { rate, guest } = (await client(host, phase)) as Bulk;
    const { user, system } = process.cpuUsage(before);
    const cpu = `(CPU s/GB: server ${((user + system) / 1e6 / GIGABYTES).toFixed(2)}, guest ${(guest / GIGABYTES).toFixed(2)})`;
    columns.push(`${phase} ${rate.toFixed(0)} MB/s${carried ? ` ${cpu}` : ''}`);
  }
  if (PHASES.includes('small')) {
    const small = (await client(host, 'small', together)) as Small;
    columns.push(
      `echo p50 ${small.p50.toFixed(3)} p99 ${small.p99.toFixed(3)} ms`,
      `${small.perSecond.toFixed(0)} connections/s`,
      `${small.together} at once in ${small.togetherMs.toFixed(0)} ms`,
    );
  }
  columns.push(`load ${loadavg()[0]!.toFixed(1)}`);
  process.stdout.write(`${columns.join('  ')}\n`);
}

const argumentsFor = (host: string, phase: string, together: number) =>
  [host, ...ports, MEGABYTES, together, phase].map(String);

const onHost: Client = async (host, phase, together = TOGETHER) =>
  JSON.parse((await run('python3', ['-c', CLIENT, ...argumentsFor(host, phase, together)])).stdout);

await measure('loopback of the machine', onHost, '127.0.0.1', false);

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
    return JSON.parse(text.slice(text.indexOf('{'))) as unknown;
  };
  await guest.files('user').write('/tmp/client.py', Buffer.from(CLIENT));
  await guest.files('user').write('/tmp/target.py', Buffer.from(TARGET));
  const own: Client = (host, phase, together = 200) =>
    inside(
      `python3 /tmp/target.py > /tmp/ports & until [ $(wc -w < /tmp/ports) = 3 ]; do sleep 0.1; done; python3 /tmp/client.py ${host} $(cat /tmp/ports) ${MEGABYTES} ${together} ${phase}; kill %1`,
    );
  const carried: Client = (host, phase, together = TOGETHER) =>
    inside(`python3 /tmp/client.py ${argumentsFor(host, phase, together).join(' ')}`);
  const rounds = Number(process.env['ROUNDS'] ?? 1);
  for (let round = 0; round < rounds; round++) {
    await measure(`${runtime}, its own loopback`, own, '127.0.0.1', false, 200);
    await measure(`${runtime}, carried`, carried, NAME, true);
  }
  await backend.remove(id);
  await backend.destroy();
  world.egress.close();
  rmSync(dir, { recursive: true, force: true });
}
target.kill();
