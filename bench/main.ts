/**
 * Measures Cay beside the tools it uses, in one run on one machine, and prints ratios as well
 * as figures: absolute times swing with the machine, ratios much less.
 *
 *     npm run bench                     everything but kubernetes
 *     npm run bench -- exec create      only these sections
 *
 * Sections: exec, create, files, tools, idle, burst, travel, e2b, restart, api, kubernetes. CAY_BENCH_SECONDS
 * shortens the minute that api takes, and the one in which kubernetes counts the requests of an idle sandbox;
 * CAY_BENCH_SANDBOXES says how many restart has, CAY_BENCH_ROUNDS how often e2b does it.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { openLocal } from '../server/src/backends/local/open-local.ts';
import { benchApi } from './api.ts';
import { startBaselines } from './baselines.ts';
import { benchBurst } from './burst.ts';
import { benchCreate } from './create.ts';
import { benchE2b } from './e2b.ts';
import { benchExec } from './exec.ts';
import { benchFiles } from './files.ts';
import { benchIdle } from './idle.ts';
import { benchKubernetes } from './kubernetes.ts';
import { benchRestart } from './restart.ts';
import { benchTools } from './tools.ts';
import { benchTravel } from './travel.ts';
import { environment, Report } from './report.ts';

// Servers make no sandboxes of their own beside those that are looked at.
process.env['CAY_PROBE'] ??= 'off';

const SECTIONS = {
  exec: benchExec,
  create: benchCreate,
  files: benchFiles,
  tools: benchTools,
  idle: benchIdle,
  burst: benchBurst,
  travel: benchTravel,
  e2b: benchE2b,
  restart: benchRestart,
  api: benchApi,
  kubernetes: benchKubernetes,
} as const;

/** The first run builds a whole cluster: too much for a run of all benchmarks. */
const ONLY_BY_NAME = ['kubernetes'];

const asked = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const unknown = asked.find((name) => !(name in SECTIONS));
if (unknown !== undefined) {
  console.error(
    `Section "${unknown}" is unknown\nhint: the sections are ${Object.keys(SECTIONS).join(', ')}`,
  );
  process.exit(64);
}

const report = new Report();
console.log(
  Object.entries(environment())
    .map(([key, value]) => `${key}: ${value}`)
    .join('\n'),
  '\n',
);

const dir = await mkdtemp('/tmp/cay-bench-');
// Sandboxes pass through it with ids of their own.
await chmod(dir, 0o711);
const baselines = await startBaselines();
try {
  for (const [name, section] of Object.entries(SECTIONS)) {
    if (asked.length > 0 ? !asked.includes(name) : ONLY_BY_NAME.includes(name)) continue;
    console.log(`\n${name}`);
    await section({
      report,
      baselines,
      open: (options = {}) => openLocal({ dir: `${dir}/${name}`, ...options }),
    });
  }
} finally {
  await baselines.stop();
  await rm(dir, { recursive: true, force: true }).catch((error: unknown) =>
    console.error('left behind:', dir, error),
  );
}
console.log(`\nsaved as ${report.save('bench/results')}`);
