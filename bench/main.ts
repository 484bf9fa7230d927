/**
 * Measures Cay beside the tools it uses, in one run on one machine, and prints ratios as well
 * as figures: absolute times swing with the machine, ratios much less.
 *
 *     npm run bench                     everything but kubernetes
 *     npm run bench -- exec create      only these sections
 *     npm run bench -- --runs=5 --keep  five times, and keeps medians and spread in bench/kept.json
 *
 * Every run is compared with what is kept, and says what got worse by more than the noise of those runs; with
 * --check it then fails.
 *
 * Sections: exec, create, files, copies, tools, agents, idle, burst, travel, e2b, clients, many, restart,
 * api, kubernetes, peer. CAY_BENCH_SECONDS shortens the minute that api takes, and the one in which
 * kubernetes counts the requests of an idle sandbox; CAY_BENCH_SANDBOXES says how many restart has,
 * CAY_BENCH_ROUNDS how often e2b does it.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { openLocal } from '../server/src/backends/local/open-local.ts';
import { benchAgents } from './agents.ts';
import { benchApi } from './api.ts';
import { startBaselines } from './baselines.ts';
import { compare, comparisonText, figuresOf, type Figure, type Kept } from './compare.ts';
import { benchBurst } from './burst.ts';
import { benchClients } from './clients.ts';
import { benchCopies } from './copies.ts';
import { benchCreate } from './create.ts';
import { benchE2b } from './e2b.ts';
import { benchExec } from './exec.ts';
import { benchFiles } from './files.ts';
import { benchIdle } from './idle.ts';
import { keptPage } from './kept-page.ts';
import { benchKubernetes } from './kubernetes.ts';
import { benchMany } from './many.ts';
import { benchPeer } from './peer.ts';
import { benchRestart } from './restart.ts';
import { benchTools } from './tools.ts';
import { benchTravel } from './travel.ts';
import { environment, Report, type Row } from './report.ts';

// Servers make no sandboxes of their own beside those that are looked at.
process.env['CAY_PROBE'] ??= 'off';

const SECTIONS = {
  exec: benchExec,
  create: benchCreate,
  files: benchFiles,
  copies: benchCopies,
  tools: benchTools,
  agents: benchAgents,
  idle: benchIdle,
  burst: benchBurst,
  travel: benchTravel,
  e2b: benchE2b,
  clients: benchClients,
  many: benchMany,
  restart: benchRestart,
  api: benchApi,
  kubernetes: benchKubernetes,
  peer: benchPeer,
} as const;

/** One builds a whole cluster, the other needs a server of somebody else. */
const ONLY_BY_NAME = ['kubernetes', 'peer'];

const asked = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const unknown = asked.find((name) => !(name in SECTIONS));
if (unknown !== undefined) {
  console.error(
    `Section "${unknown}" is unknown\nhint: the sections are ${Object.keys(SECTIONS).join(', ')}`,
  );
  process.exit(64);
}

const KEPT = new URL('kept.json', import.meta.url);
const KEPT_PAGE = new URL('../docs/reference/benchmarks.md', import.meta.url);
const runs = Number(process.argv.find((argument) => argument.startsWith('--runs='))?.slice(7) ?? 1);
if (!Number.isInteger(runs) || runs < 1) {
  console.error('--runs takes a number of at least 1, as in --runs=5');
  process.exit(64);
}

const machine = environment();
console.log(
  Object.entries(machine)
    .map(([key, value]) => `${key}: ${value}`)
    .join('\n'),
  '\n',
);

const dir = await mkdtemp('/tmp/cay-bench-');
// Sandboxes pass through it with ids of their own.
await chmod(dir, 0o711);
const baselines = await startBaselines();
const rows: Row[][] = [];
try {
  for (let run = 1; run <= runs; run++) {
    const report = new Report();
    if (runs > 1) console.log(`\nrun ${run} of ${runs}`);
    for (const [name, section] of Object.entries(SECTIONS)) {
      if (asked.length > 0 ? !asked.includes(name) : ONLY_BY_NAME.includes(name)) continue;
      console.log(`\n${name}`);
      report.section(name);
      await section({
        report,
        baselines,
        open: (options = {}) => openLocal({ dir: `${dir}/${name}`, ...options }),
      });
    }
    rows.push(report.rows);
    console.log(`\nsaved as ${report.save('bench/results')}`);
  }
} finally {
  await baselines.stop();
  await rm(dir, { recursive: true, force: true }).catch((error: unknown) =>
    console.error('left behind:', dir, error),
  );
}

const figures = figuresOf(rows);
if (runs > 1) {
  console.log('\nmedians, with the lowest and the highest run');
  for (const { key, unit, median, lowest, highest } of figures)
    console.log(
      `${key.padEnd(72)} ${median.toFixed(2)} ${unit}  (${lowest.toFixed(2)}–${highest.toFixed(2)})`,
    );
}
const kept = readKept();
if (kept) {
  const changes = compare(kept, machine, figures);
  console.log(`\n${comparisonText(kept, machine, changes).join('\n')}`);
  if (process.argv.includes('--check') && changes.some(({ verdict }) => verdict === 'worse'))
    process.exitCode = 1;
}
if (process.argv.includes('--keep')) {
  // Sections that were not run keep their figures.
  const measured = new Set(figures.map(({ key }) => key));
  const others = (kept?.figures ?? []).filter(({ key }) => !measured.has(key));
  const keeping: Kept = { environment: machine, figures: inOrder([...others, ...figures]) };
  writeFileSync(KEPT, `${JSON.stringify(keeping, null, 2)}\n`);
  writeFileSync(KEPT_PAGE, keptPage(keeping));
  console.log('kept in bench/kept.json and docs/reference/benchmarks.md');
}

/** As the sections are. */
function inOrder(all: Figure[]): Figure[] {
  const names = Object.keys(SECTIONS);
  const place = ({ key }: Figure) => names.indexOf(key.split(':')[0]!);
  return all.toSorted((a, b) => place(a) - place(b));
}

function readKept(): Kept | undefined {
  try {
    return JSON.parse(readFileSync(KEPT, 'utf8')) as Kept;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
