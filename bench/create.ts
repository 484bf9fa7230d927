/** From nothing, or from the warm pool, to the end of the first command. */
import type { SandboxId } from '@cay/sdk/protocol';
import { create, exec, RUNTIMES, wipe, type Bench } from './bench.ts';
import { measure } from './measure.ts';

export async function benchCreate({ report, baselines, open }: Bench): Promise<void> {
  const docker = baselines.docker && (await measure(10, () => baselines.docker!.run()));
  if (docker) report.add({ what: 'docker run true', value: docker.p50, p99: docker.p99, unit: 'ms' });

  for (const runtime of RUNTIMES) {
    const backend = await open();
    try {
      await backend.remove((await create(backend, { runtime })).id);
      const made: SandboxId[] = [];
      const cold = await measure(15, async () => {
        const { id, guest } = await create(backend, { runtime });
        await exec(guest, 'true');
        made.push(id);
      });
      for (const id of made) await backend.remove(id);
      const baseline = await measure(15, () => baselines.runtime(runtime).run());
      report.add({ what: `${runtime} run true`, value: baseline.p50, p99: baseline.p99, unit: 'ms' });
      report.add({
        what: `create + first exec, cold, ${runtime}`,
        value: cold.p50,
        p99: cold.p99,
        unit: 'ms',
      });
      report.add({
        what: `  … of the bare runtime's run`,
        value: cold.p50 / baseline.p50,
        unit: 'x',
        aim: { value: 1.3, better: 'less' },
      });
    } finally {
      await wipe(backend);
    }

    const pooled = await open({ poolSize: 10, runtime });
    try {
      const rounds = 3;
      const samples = [];
      for (let round = 0; round < rounds; round++) {
        await pooled.warm();
        const ids: SandboxId[] = [];
        samples.push(
          await measure(
            8,
            async () => {
              const { id, guest } = await create(pooled, { runtime });
              await exec(guest, 'true');
              ids.push(id);
            },
            { warmUp: 0 },
          ),
        );
        for (const id of ids) await pooled.remove(id);
      }
      const p50 = samples.map((one) => one.p50).toSorted((a, b) => a - b)[1]!;
      report.add({
        what: `create + first exec, warm, ${runtime}`,
        value: p50,
        p99: Math.max(...samples.map((one) => one.p99)),
        unit: 'ms',
        aim: { value: runtime === 'runsc' ? 8 : 10, better: 'less' },
      });
      if (docker)
        report.add({
          what: `  … of docker run`,
          value: p50 / docker.p50,
          unit: 'x',
          aim: { value: runtime === 'runsc' ? 1 / 15 : 1 / 30, better: 'less' },
        });
    } finally {
      await wipe(pooled);
    }
  }
}
