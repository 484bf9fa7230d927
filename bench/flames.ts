/**
 * Profiles the hot paths of the engine with the kernel's `perf`, and draws each as a flame graph.
 *
 *     npm run flames                         every path on every runtime, into docs/images/flames
 *     npm run flames -- exec fork:runsc      only these
 *
 * Paths: exec, create (from the warm pool), cold, fork (captured once, then children), restore (hibernate and
 * wake). Needs root and `perf` (Debian's linux-perf). Names of functions of gVisor need a runsc that has
 * them: CAY_RUNSC chooses it. Those of JavaScript come from `node --perf-basic-prof`.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { openLocal } from '../server/src/backends/local/open-local.ts';
import type { LocalBackend } from '../server/src/backends/local/local.ts';
import { create, exec, RUNTIMES, wipe } from './bench.ts';
import { drawFlames } from './draw-flames.ts';
import { foldStack, type Stacks } from './fold-stacks.ts';

type Runtime = (typeof RUNTIMES)[number];

const SECONDS = Number(process.env['CAY_FLAME_SECONDS'] ?? 8);
const TIMES_A_SECOND = 997;
const OUT = 'docs/images/flames';
const HOLD_64_MB =
  "nohup python3 -c \"import os, time\nheld = os.urandom(64 << 20)\nopen('/home/user/held', 'w').close()\n" +
  'while True: time.sleep(60)" >/dev/null 2>&1 & until [ -e /home/user/held ]; do sleep 0.05; done';

/** Prepares, and returns what is done again and again. */
type Path = (backend: LocalBackend, runtime: Runtime) => Promise<() => Promise<void>>;

const PATHS: Record<string, { runtimes: readonly Runtime[]; pool?: number; prepare: Path }> = {
  exec: {
    runtimes: RUNTIMES,
    async prepare(backend, runtime) {
      const { guest } = await create(backend, { runtime });
      return () => exec(guest, 'true');
    },
  },
  create: {
    runtimes: RUNTIMES,
    pool: 4,
    async prepare(backend, runtime) {
      await backend.warm();
      return createOne(backend, runtime);
    },
  },
  cold: {
    runtimes: RUNTIMES,
    prepare: async (backend, runtime) => createOne(backend, runtime),
  },
  fork: {
    runtimes: ['runsc'],
    async prepare(backend, runtime) {
      const spec = SandboxSpecSchema.parse({ runtime });
      const parent = await create(backend, { runtime });
      await exec(parent.guest, 'sh', '-c', HOLD_64_MB);
      return async () => {
        const snapshot = newId('snap');
        await backend.snapshot(parent.id, snapshot, { memory: true });
        const child = newId('sbx');
        await backend.clone(child, spec, snapshot, { memory: true, start: true });
        await exec(await backend.connect(child), 'true');
        await backend.remove(child);
        await backend.removeSnapshot(snapshot);
      };
    },
  },
  restore: {
    runtimes: ['runsc'],
    async prepare(backend, runtime) {
      const spec = SandboxSpecSchema.parse({ runtime });
      const { id, guest } = await create(backend, { runtime });
      await exec(guest, 'sh', '-c', HOLD_64_MB);
      return async () => {
        await backend.hibernate(id);
        await backend.ensure(id, spec);
        await exec(await backend.connect(id), 'true');
      };
    },
  },
};

function createOne(backend: LocalBackend, runtime: Runtime) {
  return async () => {
    const { id, guest } = await create(backend, { runtime });
    await exec(guest, 'true');
    await backend.remove(id);
  };
}

const asked = process.argv.slice(2);
const unknown = asked.find((name) => !(name.split(':')[0]! in PATHS));
if (unknown !== undefined) {
  console.error(`Path "${unknown}" is unknown\nhint: the paths are ${Object.keys(PATHS).join(', ')}`);
  process.exit(64);
}
await mkdir(OUT, { recursive: true });
for (const [name, path] of Object.entries(PATHS)) {
  for (const runtime of path.runtimes) {
    if (asked.length > 0 && !asked.includes(name) && !asked.includes(`${name}:${runtime}`)) continue;
    await profile(name, runtime);
  }
}
await rm(`/tmp/perf-${process.pid}.map`, { force: true });

async function profile(name: string, runtime: Runtime): Promise<void> {
  const dir = await mkdtemp('/tmp/cay-flames-');
  await chmod(dir, 0o711);
  const { pool = 0, prepare } = PATHS[name]!;
  const backend = await openLocal({ dir: join(dir, 'engine'), runtime, poolSize: pool });
  const data = join(dir, 'perf.data');
  try {
    const task = await prepare(backend, runtime);
    for (let index = 0; index < 5; index++) await task();
    const perf = spawn(
      'perf',
      ['record', '-q', '-a', '-g', '-F', String(TIMES_A_SECOND), '-o', data, 'sleep', String(SECONDS)],
      { stdio: ['ignore', 'ignore', 'inherit'] },
    );
    const ended = once(perf, 'close') as Promise<[number | null]>;
    let running = true;
    void ended.then(() => (running = false));
    let count = 0;
    const begun = performance.now();
    while (running) {
      await task();
      count++;
    }
    const seconds = (performance.now() - begun) / 1000;
    const [code] = await ended;
    if (code !== 0) throw new Error(`perf record ended with ${code}`);
    await draw(name, runtime, await readStacks(data), count, seconds);
  } finally {
    await wipe(backend);
    await rm(dir, { recursive: true, force: true });
  }
}

async function readStacks(data: string): Promise<Stacks> {
  const stacks: Stacks = new Map();
  const perf = spawn('perf', ['script', '-i', data, '-F', 'comm,pid,ip,sym', '--ns'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let lines: string[] = [];
  for await (const line of createInterface({ input: perf.stdout })) {
    if (line !== '') {
      lines.push(line);
      continue;
    }
    foldStack(lines, process.pid, stacks);
    lines = [];
  }
  return stacks;
}

async function draw(
  name: string,
  runtime: Runtime,
  stacks: Stacks,
  count: number,
  seconds: number,
): Promise<void> {
  const samples = stacks.values().reduce((sum, each) => sum + each, 0);
  const milliseconds = (part: number) => ((part / TIMES_A_SECOND) * 1000) / count;
  const title = `${name}, ${runtime}: ${(1000 * (seconds / count)).toFixed(2)} ms each, ${milliseconds(samples).toFixed(2)} ms of processors`;
  console.log(`\n${title}`);
  const byProcess = new Map<string, number>();
  for (const [stack, part] of stacks) {
    const process = stack.split(';')[0]!;
    byProcess.set(process, (byProcess.get(process) ?? 0) + part);
  }
  for (const [process, part] of [...byProcess].toSorted((a, b) => b[1] - a[1]).slice(0, 10))
    console.log(
      `  ${process.padEnd(28)} ${milliseconds(part).toFixed(3)} ms  ${((100 * part) / samples).toFixed(0)} %`,
    );
  await writeFile(join(OUT, `${name}-${runtime}.svg`), drawFlames(title, stacks));
}
