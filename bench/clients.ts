/**
 * What agents do all day through E2B's client: commands, small files, new sandboxes. The server is a process
 * of its own, as users have it, with its default pool.
 */
import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { liveServer, type LiveServer } from '../test/support/live-server.ts';
import { RUNTIMES, type Bench } from './bench.ts';
import { measure, series } from './measure.ts';

type Runtime = (typeof RUNTIMES)[number];

const AIMS = {
  runc: { run: 5, write: undefined, read: undefined, create: 30 },
  runsc: { run: 10, write: 4, read: 3, create: 60 },
} as const;
const BURST = 100;
const IN_A_ROW = 15;

export async function benchClients({ report }: Pick<Bench, 'report'>): Promise<void> {
  console.log(`load of the machine before: ${loadavg()[0]!.toFixed(1)}`);
  for (const runtime of RUNTIMES) {
    await using server = await liveServer({ CAY_RUNTIME: runtime, CAY_POOL: '2', CAY_LOG_LEVEL: 'warn' });
    await benchSandbox(report, server, runtime);
    await benchCreates(report, server, runtime);
  }
}

function connection({ url, apiKey }: LiveServer) {
  return { apiKey, apiUrl: url, sandboxUrl: url };
}

async function benchSandbox(report: Bench['report'], server: LiveServer, runtime: Runtime): Promise<void> {
  const aims = AIMS[runtime];
  const sandbox = await Sandbox.create(connection(server));
  const kilobyte = 'x'.repeat(1024);
  const add = (what: string, { p50, p99 }: { p50: number; p99: number }, aim?: number) =>
    report.add({
      what: `${what} by E2B's client, ${runtime}`,
      value: p50,
      p99,
      unit: 'ms',
      ...(aim !== undefined && { aim: { value: aim, better: 'less' } }),
    });
  const run = async () => void (await sandbox.commands.run('true'));
  add("commands.run('true')", await measure(150, run, { warmUp: 30 }), aims.run);
  const write = async () => void (await sandbox.files.write('/home/user/small', kilobyte));
  add('files.write of 1 KB', await measure(150, write, { warmUp: 30 }), aims.write);
  const read = async () => void (await sandbox.files.read('/home/user/small'));
  add('files.read of 1 KB', await measure(150, read, { warmUp: 30 }), aims.read);
  await sandbox.kill();
}

/** From the call to a sandbox that has run a program. */
async function interactive(server: LiveServer): Promise<{ tookMs: number; sandbox: Sandbox }> {
  const begun = performance.now();
  const sandbox = await Sandbox.create(connection(server));
  await sandbox.commands.run('node -v');
  return { tookMs: performance.now() - begun, sandbox };
}

async function benchCreates(report: Bench['report'], server: LiveServer, runtime: Runtime): Promise<void> {
  await sleep(2_000);
  const spaced: number[] = [];
  for (let index = 0; index < 8; index++) {
    await sleep(600);
    const { tookMs, sandbox } = await interactive(server);
    spaced.push(tookMs);
    await sandbox.kill();
  }
  const one = series(spaced);
  report.add({
    what: `create + \`node -v\`, one at a time, ${runtime}`,
    value: one.p50,
    p99: one.p99,
    unit: 'ms',
    aim: { value: 60, better: 'less' },
  });

  const made: Sandbox[] = [];
  const create = async () => void made.push(await Sandbox.create(connection(server)));
  const row = await measure(IN_A_ROW, create, { warmUp: 2 });
  report.add({
    what: `Sandbox.create back to back, ${runtime}`,
    value: row.p50,
    p99: row.p99,
    unit: 'ms',
    aim: { value: AIMS[runtime].create, better: 'less' },
  });
  await Promise.all(made.map((sandbox) => sandbox.kill()));

  await sleep(2_000);
  const all = await Promise.all(Array.from({ length: BURST }, () => interactive(server)));
  const burst = series(all.map(({ tookMs }) => tookMs));
  report.add({
    what: `create + \`node -v\`, ${BURST} at once, ${runtime}`,
    value: burst.p50,
    p99: burst.p99,
    unit: 'ms',
  });
  report.add({
    what: `  … the slowest of a hundred`,
    value: burst.p99,
    unit: 'ms',
    aim: { value: 2000, better: 'less' },
  });
  await Promise.all(all.map(({ sandbox }) => sandbox.kill()));
}
