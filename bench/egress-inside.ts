/**
 * What programs in sandboxes get of the network, beside the machine's own loopback, a Docker bridge, the
 * sandbox's own loopback and gVisor's own netstack: `node bench/egress-inside.ts runc runsc`. Needs root.
 *
 * MEGABYTES is how much each phase carries, PHASES which there are (down, up, tlsdown, tlsup, h1down, h1up,
 * h2down, h2up, small; those of `h` are curl's, over terminated TLS), ROUNDS how often all of it is done, and
 * BRIDGES=no leaves out what is beside.
 */
import { execFile } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { openLocal } from '../server/src/backends/local/open-local.ts';
import { newAuthority, openAuthority } from '../server/src/egress/tls/authority.ts';
import { openWorld } from '../server/src/egress/testing/program.ts';
import { collect } from '../server/src/guest/collect.ts';
import { whyNoDockerd } from '../test/support/dockerd.ts';
import { dockerBridge, gvisorNetstack, type Bridge } from './egress-bridges.ts';
import {
  type Bulk,
  type Client,
  CLIENT,
  clientArguments,
  NAME,
  type Small,
  startTarget,
  TARGET,
} from './egress-programs.ts';

const run = promisify(execFile);
const MEGABYTES = Number(process.env['MEGABYTES'] ?? 1024);
const PHASES = (process.env['PHASES'] ?? 'down,up,tlsdown,tlsup,h1down,h1up,h2down,h2up,small').split(',');
const ROUNDS = Number(process.env['ROUNDS'] ?? 1);
const TOGETHER = 1000;
const GIGABYTES = (MEGABYTES * 1.048576) / 1000;

interface Measured {
  readonly phases?: readonly string[];
  readonly together?: number;
  /** Seconds of the processor that the sandbox has used, the client included. Present where Cay carries. */
  readonly sandbox?: () => Promise<number>;
}

async function measure(what: string, client: Client, options: Measured = {}): Promise<void> {
  const { phases = PHASES, together = TOGETHER, sandbox } = options;
  const columns = [what.padEnd(26)];
  for (const phase of PHASES.filter((one) => one !== 'small' && phases.includes(one))) {
    const before = process.cpuUsage();
    const used = await sandbox?.();
    const { rate, guest } = (await client(phase, together)) as Bulk;
    const { user, system } = process.cpuUsage(before);
    const a = (seconds: number) => (seconds / GIGABYTES).toFixed(2);
    const cpu =
      used === undefined
        ? ''
        : ` (CPU s/GB: server ${a((user + system) / 1e6)}, guest ${a(guest)}, sandbox ${a((await sandbox!()) - used)})`;
    columns.push(`${phase} ${rate.toFixed(0)} MB/s${cpu}`);
  }
  if (PHASES.includes('small') && phases.includes('small')) {
    const before = process.cpuUsage();
    const small = (await client('small', together)) as Small;
    const { user, system } = process.cpuUsage(before);
    columns.push(
      `echo p50 ${small.p50.toFixed(3)} p99 ${small.p99.toFixed(3)} ms`,
      `${small.perSecond.toFixed(0)} connections/s`,
      `${small.together} at once in ${small.togetherMs.toFixed(0)} ms`,
      ...(sandbox ? [`server ${((user + system) / 1e6).toFixed(2)} CPU s`] : []),
    );
  }
  columns.push(`load ${loadavg()[0]!.toFixed(1)}`);
  process.stdout.write(`${columns.join('  ')}\n`);
}

const dir = mkdtempSync('/tmp/cay-bench-egress-');
chmodSync(dir, 0o711);

async function measureBridge(open: () => Promise<Bridge>): Promise<void> {
  await using bridge = await open();
  using target = await startTarget(dir, bridge.address);
  const client: Client = async (phase, together) =>
    JSON.parse(
      await bridge.run(clientArguments(bridge.address, target.ports, MEGABYTES, phase, together)),
    ) as unknown;
  try {
    for (let round = 0; round < ROUNDS; round++) await measure(bridge.what, client);
  } catch (error) {
    // Older versions of gVisor have no network card in the first namespace of the machine.
    process.stdout.write(`${bridge.what}: ${(error as { stderr?: string }).stderr ?? String(error)}\n`);
  }
}

async function measureCay(runtime: string): Promise<void> {
  using target = await startTarget(dir);
  const world = openWorld({
    authority: openAuthority(newAuthority()),
    trusted: [target.certificate],
    limits: { connectionsPerMinute: 1_000_000, connections: 2000 },
  });
  world.names.set(NAME, ['127.0.0.1']);
  const backend = await openLocal({ dir: join(dir, 'engine'), runtime, poolSize: 0, egress: world.egress });
  const id = newId('sbx');
  const plain = target.ports.slice(0, 3).map((port) => `${NAME}:${port}`);
  // The condition makes the server terminate TLS on those ports.
  const inspected = target.ports.slice(3).map((port) => ({
    to: `${NAME}:${port}`,
    methods: ['GET', 'POST', 'PUT'],
  }));
  world.egress.policies.set(id, [{ allow: [...plain, ...inspected] }, 'public']);
  const limits = { cpus: null, memoryBytes: 1024 ** 3, diskBytes: null };
  await backend.ensure(id, SandboxSpecSchema.parse({ runtime, limits }));
  const guest = await backend.connect(id);
  const inside = async (script: string) => {
    const argv = ['sh', '-c', script];
    const handle = await guest.exec({ id: newId('cmd'), argv, env: {}, workdir: '/tmp', user: 'user' });
    const { stdout, stderr } = await collect(handle, { maxBytes: 65_536 });
    const text = stdout.toString();
    if (!text.includes('{')) throw new Error(stderr.toString());
    return JSON.parse(text.slice(text.indexOf('{'))) as unknown;
  };
  await guest.files('user').write('/tmp/client.py', Buffer.from(CLIENT));
  await guest.files('user').write('/tmp/target.py', Buffer.from(TARGET));
  const own: Client = (phase, together) =>
    inside(
      `python3 /tmp/target.py 127.0.0.1 > /tmp/ports & target=$!; until [ $(wc -w < /tmp/ports) = 4 ]; do sleep 0.1; done; python3 /tmp/client.py 127.0.0.1 $(cat /tmp/ports) 0 ${MEGABYTES} ${together} ${phase}; kill $target`,
    );
  const carried: Client = (phase, together) =>
    inside(
      `python3 /tmp/client.py ${clientArguments(NAME, target.ports, MEGABYTES, phase, together).join(' ')}`,
    );
  const sandbox = async () => (await backend.stats(id)).cpuUsageMs / 1000;
  try {
    for (let round = 0; round < ROUNDS; round++) {
      await measure(`${runtime}, its own loopback`, own, { phases: ['down', 'up', 'small'], together: 200 });
      await measure(`${runtime}, carried`, carried, { sandbox });
    }
  } finally {
    await backend.remove(id);
    await backend.destroy();
    world.egress.close();
  }
}

const bridges = process.env['BRIDGES'] !== 'no';
try {
  {
    using target = await startTarget(dir);
    const onHost: Client = async (phase, together) => {
      const words = clientArguments('127.0.0.1', target.ports, MEGABYTES, phase, together);
      return JSON.parse((await run('python3', ['-c', CLIENT, ...words])).stdout) as unknown;
    };
    await measure('loopback of the machine', onHost);
  }
  if (bridges && whyNoDockerd() === undefined) await measureBridge(dockerBridge);
  for (const runtime of process.argv.slice(2)) {
    if (bridges && runtime === 'runsc') await measureBridge(gvisorNetstack);
    await measureCay(runtime);
  }
} finally {
  rmSync(dir, { recursive: true, force: true });
}
