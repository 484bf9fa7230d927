/**
 * The same life of a sandbox by E2B's client and by ours, in turn: what the machine does meanwhile strikes
 * both alike.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { Sandbox as E2bSandbox } from 'e2b';
import { Sandbox } from '../sdk/src/index.ts';
import { serverLog } from '../server/src/cli/lib/server-log.ts';
import { serve } from '../server/src/serve.ts';
import { wipe, type Bench } from './bench.ts';
import { series } from './measure.ts';

const ROUNDS = Number(process.env['CAY_BENCH_ROUNDS'] ?? 60);
const WARM_UP = Math.min(10, ROUNDS);

export async function benchE2b({ report, open }: Bench): Promise<void> {
  console.log(`load of the machine before: ${loadavg()[0]!.toFixed(1)}`);
  const dataDir = await mkdtemp('/tmp/cay-bench-e2b-');
  const server = await serve({
    backend: await open({ runtime: 'runc' }),
    dataDir,
    port: 0,
    log: serverLog('info', '/dev/null'),
  });
  const { url } = server;
  const apiKey = server.adminKey!;
  const theirs = async () => {
    const sandbox = await E2bSandbox.create({ apiKey, apiUrl: url, sandboxUrl: url });
    await sandbox.commands.run('true');
    await sandbox.kill();
  };
  const ours = async () => {
    const sandbox = await Sandbox.create({}, { url, apiKey });
    // What their client makes of it.
    await sandbox.exec(['/bin/bash', '-l', '-c', 'true']);
    await sandbox.kill();
  };
  const timed = async (life: () => Promise<void>) => {
    const start = performance.now();
    await life();
    return performance.now() - start;
  };
  try {
    const samples = { theirs: [] as number[], ours: [] as number[], more: [] as number[] };
    for (let index = -WARM_UP; index < ROUNDS; index++) {
      // The first of the two pays for what the machine did before, so they take turns.
      const first = index % 2 === 0 ? await timed(theirs) : await timed(ours);
      const second = index % 2 === 0 ? await timed(ours) : await timed(theirs);
      if (index < 0) continue;
      const [e2b, own] = index % 2 === 0 ? [first, second] : [second, first];
      samples.theirs.push(e2b);
      samples.ours.push(own);
      samples.more.push(e2b - own);
    }
    const [e2b, own, more] = [series(samples.theirs), series(samples.ours), series(samples.more)];
    report.add({
      what: "create + true + kill by E2B's client, runc",
      value: e2b.p50,
      p99: e2b.p99,
      unit: 'ms',
    });
    report.add({ what: 'create + true + kill by our own, runc', value: own.p50, p99: own.p99, unit: 'ms' });
    report.add({
      what: "  … E2B's takes longer, in the same round",
      value: more.p50,
      unit: 'ms',
      aim: { value: 5, better: 'less' },
    });
  } finally {
    await server.close();
    await wipe(await open({ runtime: 'runc' }));
    await rm(dataDir, { recursive: true, force: true });
  }
}
