/**
 * Snapshots, rollbacks and forks of files small and large; forks with memory; sleeping and waking; comparing.
 */
import { newId, SandboxSpecSchema, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import type { LocalBackend } from '../server/src/backends/local/local.ts';
import { create, exec, wipe, type Bench } from './bench.ts';
import { measure } from './measure.ts';

const MiB = 1024 * 1024;
const SMALL = `head -c ${10 * MiB} /dev/urandom > /home/user/ten`;
/** Five gigabytes that compress to nothing are written as holes are not: as zeros. */
const LARGE =
  'mkdir -p /home/user/many && cd /home/user/many && ' +
  `python3 -c "
import os
for i in range(100000):
    if i % 500 == 0: os.mkdir('d%d' % (i // 500))
    open('d%d/%d' % (i // 500, i), 'w').write('file %d' % i)
" && for i in 1 2 3 4 5; do dd if=/dev/zero of=/home/user/big$i bs=1M count=1024 status=none; done`;

export async function benchTravel({ report, open }: Bench): Promise<void> {
  const files: Record<string, Record<'snapshot' | 'clone' | 'rollback', number>> = {};
  for (const [size, fill] of [
    ['10 MB', SMALL],
    ['5 GB in 100,000 files', LARGE],
  ] as const) {
    const backend = await open({ storage: 'btrfs' });
    try {
      const { id, guest } = await create(backend, { runtime: 'runc' });
      await exec(guest, 'sh', '-c', fill);
      files[size] = await benchFilesOf(backend, id);
      for (const [verb, value] of Object.entries(files[size]))
        report.add({
          what: `${verb} of files, ${size}`,
          value,
          unit: 'ms',
          aim: { value: verb === 'snapshot' ? 8 : 12, better: 'less' },
        });
      if (size !== '10 MB') await benchChanges({ report, open }, backend, id);
    } finally {
      await wipe(backend);
    }
  }
  const [small, large] = Object.values(files) as [(typeof files)[string], (typeof files)[string]];
  for (const verb of ['snapshot', 'clone', 'rollback'] as const) {
    report.add({
      what: `  … ${verb}, large to small`,
      value: large[verb] / small[verb],
      unit: 'x',
      aim: { value: 2, better: 'less' },
    });
  }
  await benchMemory({ report, open });
}

/**
 * Of a stopped sandbox: what a running one adds is the end and the start of its processes, which `create`
 * measures.
 */
async function benchFilesOf(backend: LocalBackend, id: SandboxId) {
  const snapshots: SnapshotId[] = [];
  // Running, after everything has reached the disk once.
  await backend.snapshot(id, newId('snap'));
  const snapshot = await measure(15, async () => {
    snapshots.push(newId('snap'));
    await backend.snapshot(id, snapshots.at(-1)!);
  });
  await backend.stop(id, { graceMs: 0 });
  const clones: SandboxId[] = [];
  const spec = SandboxSpecSchema.parse({ runtime: 'runc' });
  const clone = await measure(15, async () => {
    clones.push(newId('sbx'));
    await backend.clone(clones.at(-1)!, spec, snapshots[0]!);
  });
  const rollback = await measure(15, () => backend.rollback(id, snapshots[0]!).then(() => undefined));
  for (const one of clones) await backend.remove(one);
  return { snapshot: snapshot.p50, clone: clone.p50, rollback: rollback.p50 };
}

async function benchChanges(
  { report }: Pick<Bench, 'report' | 'open'>,
  backend: LocalBackend,
  id: SandboxId,
): Promise<void> {
  const [from, to] = [newId('snap'), newId('snap')] as const;
  await backend.snapshot(id, from);
  await backend.ensure(id, SandboxSpecSchema.parse({ runtime: 'runc' }));
  await exec(await backend.connect(id), 'sh', '-c', 'echo changed > /home/user/many/d7/3500');
  await backend.snapshot(id, to);
  const diff = await measure(10, async () => {
    for await (const _ of backend.changes(from, to));
  });
  report.add({
    what: 'diff of one file among 100,000',
    value: diff.p50,
    p99: diff.p99,
    unit: 'ms',
    aim: { value: 200, better: 'less' },
  });
}

const HOLD = (mebibytes: number) =>
  `nohup python3 -c "
import os, time
held = os.urandom(${mebibytes} * ${MiB})
open('/home/user/held', 'w').write('yes')
while True: time.sleep(60)
" >/dev/null 2>&1 & until [ -e /home/user/held ]; do sleep 0.05; done`;

async function benchMemory({ report, open }: Pick<Bench, 'report' | 'open'>): Promise<void> {
  const backend = await open({ runtime: 'runsc' });
  const spec = SandboxSpecSchema.parse({ runtime: 'runsc' });
  try {
    const parent = await create(backend, { runtime: 'runsc' });
    await exec(parent.guest, 'sh', '-c', HOLD(64));
    const captures: number[] = [];
    const firsts: number[] = [];
    const each: number[] = [];
    for (let round = 0; round < 5; round++) {
      const snapshot = newId('snap');
      const begun = performance.now();
      await backend.snapshot(parent.id, snapshot, { memory: true });
      const captured = performance.now();
      captures.push(captured - begun);
      const child = async () => {
        const id = newId('sbx');
        await backend.clone(id, spec, snapshot, { memory: true, start: true });
        await exec(await backend.connect(id), 'true');
        return id;
      };
      const first = await child();
      firsts.push(performance.now() - begun);
      const ten = performance.now();
      const children = await Promise.all(Array.from({ length: 10 }, child));
      each.push((performance.now() - ten) / 10);
      for (const id of [first, ...children]) await backend.remove(id);
      await backend.removeSnapshot(snapshot);
    }
    report.add({
      what: 'fork with 64 MB: capture',
      value: median(captures),
      unit: 'ms',
      aim: { value: 60, better: 'less' },
    });
    report.add({
      what: 'fork with 64 MB: first exec in the first child',
      value: median(firsts),
      unit: 'ms',
      aim: { value: 200, better: 'less' },
    });
    report.add({
      what: 'fork with 64 MB: each of ten children after the capture',
      value: median(each),
      unit: 'ms',
      aim: { value: 110, better: 'less' },
    });

    const sleeper = await create(backend, { runtime: 'runsc' });
    await exec(sleeper.guest, 'sh', '-c', HOLD(256));
    const asleep: number[] = [];
    const awake: number[] = [];
    for (let round = 0; round < 5; round++) {
      const begun = performance.now();
      await backend.hibernate(sleeper.id);
      const slept = performance.now();
      await backend.ensure(sleeper.id, spec);
      await exec(await backend.connect(sleeper.id), 'true');
      asleep.push(slept - begun);
      awake.push(performance.now() - slept);
    }
    report.add({
      what: 'hibernate with 256 MB',
      value: median(asleep),
      unit: 'ms',
      aim: { value: 250, better: 'less' },
    });
    report.add({
      what: 'wake with 256 MB to first exec',
      value: median(awake),
      unit: 'ms',
      aim: { value: 220, better: 'less' },
    });
  } finally {
    await wipe(backend);
  }
  for (const runtime of ['runc', 'runsc']) {
    const one = await open({ runtime });
    try {
      const { id, guest } = await create(one, { runtime });
      const thawed = await measure(20, async () => {
        await one.freeze(id);
        await one.thaw(id);
        await exec(guest, 'true');
      });
      report.add({
        what: `freeze, thaw, exec, ${runtime}`,
        value: thawed.p50,
        p99: thawed.p99,
        unit: 'ms',
        aim: { value: 10, better: 'less' },
      });
    } finally {
      await wipe(one);
    }
  }
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}
