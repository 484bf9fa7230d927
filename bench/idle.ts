/** Many sandboxes that do nothing: what each costs, and whether the last is as quick as the first. */
import { readFile, readdir } from 'node:fs/promises';
import { create, exec, wipe, type Bench } from './bench.ts';
import { series } from './measure.ts';

const COUNT = 200;

export async function benchIdle({ report, open }: Bench): Promise<void> {
  const backend = await open();
  try {
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    const times: number[] = [];
    for (let index = 0; index < COUNT; index++) {
      const start = performance.now();
      const { guest } = await create(backend, { runtime: 'runc' });
      await exec(guest, 'true');
      times.push(performance.now() - start);
    }
    const bookkeeping = Math.max(0, process.memoryUsage().rss - before) / COUNT;
    const guests = await guestMemory();
    report.add({
      what: `${COUNT} idle sandboxes, runc: guest (PSS) each`,
      value: guests.pss / guests.count / 1e6,
      unit: 'MB',
    });
    report.add({ what: `  … and our bookkeeping`, value: bookkeeping / 1e6, unit: 'MB' });
    report.add({
      what: `  … together`,
      value: (guests.pss / guests.count + bookkeeping) / 1e6,
      unit: 'MB',
      aim: { value: 3, better: 'less' },
    });
    const early = series(times.slice(5, 25)).p50;
    const late = series(times.slice(-20)).p50;
    report.add({ what: 'create + exec at the 10th', value: early, unit: 'ms' });
    report.add({ what: `create + exec at the ${COUNT}th`, value: late, unit: 'ms' });
    report.add({
      what: '  … of the 10th',
      value: late / early,
      unit: 'x',
      aim: { value: 1.15, better: 'less' },
    });
  } finally {
    await wipe(backend);
  }
}

/** Proportional set size of every guest on this machine. */
async function guestMemory(): Promise<{ pss: number; count: number }> {
  let pss = 0;
  let count = 0;
  for (const pid of await readdir('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    const name = await readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '');
    if (!name.startsWith('cay-guest')) continue;
    const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => '');
    pss += Number(/^Pss:\s+(\d+)/m.exec(rollup)?.[1] ?? 0) * 1024;
    count++;
  }
  return { pss, count: Math.max(count, 1) };
}
