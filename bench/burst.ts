/** Fifty people at once, with nothing kept warm: does the server stay awake? */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { create, exec, RUNTIMES, wipe, type Bench } from './bench.ts';

const COUNT = 50;
const AIM_MS = { runc: 2_000, runsc: 4_000 } as const;

export async function benchBurst({ report, open }: Bench): Promise<void> {
  for (const runtime of RUNTIMES) {
    const backend = await open();
    try {
      await backend.remove((await create(backend, { runtime })).id);
      const delay = monitorEventLoopDelay({ resolution: 1 });
      delay.enable();
      const start = performance.now();
      await Promise.all(
        Array.from({ length: COUNT }, async () => {
          const { guest } = await create(backend, { runtime });
          await exec(guest, 'true');
        }),
      );
      const total = performance.now() - start;
      delay.disable();
      report.add({
        what: `${COUNT} cold creates at once, ${runtime}, all done`,
        value: total,
        unit: 'ms',
        aim: { value: AIM_MS[runtime], better: 'less' },
      });
      report.add({
        what: `  … event-loop delay p99`,
        value: delay.percentile(99) / 1e6,
        unit: 'ms',
        aim: { value: 25, better: 'less' },
      });
    } finally {
      await wipe(backend);
    }
  }
}
