/** A command in a sandbox that lives. */
import { create, exec, RUNTIMES, wipe, type Bench } from './bench.ts';
import { measure } from './measure.ts';

const AIM_MS = { runc: 3, runsc: 4 } as const;
/** With one processor gVisor has fewer threads to wake. */
const ONE_CPU_AIM_MS = 3.5;

export async function benchExec({ report, baselines, open }: Bench): Promise<void> {
  const docker = baselines.docker && (await measure(20, () => baselines.docker!.exec()));
  if (docker) report.add({ what: 'docker exec true', value: docker.p50, p99: docker.p99, unit: 'ms' });
  const backend = await open();
  try {
    for (const runtime of RUNTIMES) {
      const { guest } = await create(backend, { runtime });
      const ours = await measure(300, () => exec(guest, 'true'), { warmUp: 20 });
      report.add({
        what: `exec true, ${runtime}`,
        value: ours.p50,
        p99: ours.p99,
        unit: 'ms',
        aim: { value: AIM_MS[runtime], better: 'less' },
      });
      if (docker) {
        const aim = runtime === 'runc' ? { value: 1 / 20, better: 'less' as const } : undefined;
        report.add({ what: `  … of docker exec`, value: ours.p50 / docker.p50, unit: 'x', aim });
      }
      if (runtime === 'runsc') {
        const narrow = await create(backend, { runtime, limits: { cpus: 1 } });
        const alone = await measure(300, () => exec(narrow.guest, 'true'), { warmUp: 20 });
        report.add({
          what: `exec true with one processor, ${runtime}`,
          value: alone.p50,
          p99: alone.p99,
          unit: 'ms',
          aim: { value: ONE_CPU_AIM_MS, better: 'less' },
        });
      }
      const output = await measure(3, () => exec(guest, 'head', '-c', '100000000', '/dev/zero'), {
        warmUp: 1,
      });
      report.add({
        what: `100 MB of stdout, ${runtime}`,
        value: output.p50,
        p99: output.p99,
        unit: 'ms',
        aim: { value: 1000, better: 'less' },
      });
    }
  } finally {
    await wipe(backend);
  }
}
