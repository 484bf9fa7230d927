/** `kill -9` of a server with many sandboxes: how soon the next one has them all answering again. */
import { openInstallation, type Installation } from '../test/faults/model/installation.ts';
import type { Bench } from './bench.ts';
import { series } from './measure.ts';

const COUNT = Number(process.env['CAY_BENCH_SANDBOXES'] ?? 100);
const AT_ONCE = 8;

export async function benchRestart({ report }: Pick<Bench, 'report'>): Promise<void> {
  const installation = await openInstallation('runc', { env: { CAY_POOL: '0' } });
  try {
    await installation.start();
    const ids = await createAll(installation);
    // The first restart also compiles what a start needs.
    await restarted(installation, ids);
    const all = await restarted(installation, ids);
    report.add({
      what: `start of a server that finds ${COUNT} sandboxes, until it listens`,
      value: all.listensMs,
      unit: 'ms',
    });
    report.add({
      what: `  … until every one has answered an exec`,
      value: all.answeredMs,
      unit: 'ms',
      aim: { value: 2000, better: 'less' },
    });
    report.add({
      what: `  … each exec, all of them at once`,
      value: all.exec.p50,
      p99: all.exec.p99,
      unit: 'ms',
    });

    const third = Math.floor(COUNT / 3);
    const [frozen, stopped] = [ids.slice(0, third), ids.slice(third, 2 * third)];
    await each(frozen, (id) => must(installation, `/v1/sandboxes/${id}/pause`, { as: 'frozen' }));
    await each(stopped, (id) => must(installation, `/v1/sandboxes/${id}/stop`, { graceMs: 0 }));
    const mixed = await restarted(installation, [...frozen, ...ids.slice(2 * third)]);
    report.add({
      what: `the same, ${frozen.length} of them frozen and ${stopped.length} stopped, until all but the stopped have answered`,
      value: mixed.answeredMs,
      unit: 'ms',
    });
  } finally {
    await installation.destroy();
  }
}

async function createAll(installation: Installation): Promise<string[]> {
  const ids: string[] = [];
  await each(Array.from({ length: COUNT }), async () => {
    ids.push(
      (
        await must<{ id: string }>(installation, '/v1/sandboxes', {
          limits: { memoryBytes: 128 * 1024 * 1024 },
        })
      ).id,
    );
  });
  return ids;
}

/** From the moment that the process is started. */
async function restarted(installation: Installation, ids: string[]) {
  await installation.kill('SIGKILL');
  const begun = performance.now();
  await installation.start();
  const listensMs = performance.now() - begun;
  const samples = await Promise.all(
    ids.map(async (id) => {
      const asked = performance.now();
      await must(installation, `/v1/sandboxes/${id}/exec`, { argv: ['true'] });
      return performance.now() - asked;
    }),
  );
  return { listensMs, answeredMs: performance.now() - begun, exec: series(samples) };
}

async function must<T>({ client }: Installation, path: string, body: unknown): Promise<T> {
  const outcome = await client.call<T>('POST', path, { body });
  if ('done' in outcome) return outcome.done;
  throw new Error(`POST ${path} failed: ${JSON.stringify(outcome)}`);
}

async function each<T>(items: readonly T[], task: (item: T) => Promise<unknown>): Promise<void> {
  const left = [...items];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (left.length > 0) await task(left.pop() as T);
    }),
  );
}
