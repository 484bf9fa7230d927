/**
 * Random attacks for as long as one likes: `npm run attacks`.
 *
 *     node test/attacks/main.ts [--minutes 120] [--campaign api] [--target local:runc] [--seed 1] [--cases
 * 500] [--trace]
 *
 * Targets are memory, local:runsc, local:runc and docker. Without `--target` each campaign has its own.
 * Campaigns and their targets take turns, each turn on a new server and with a seed of its own, which is
 * printed. `--campaign C --target T --seed S --cases N` plays a turn again up to its case N, once.
 *
 *     node test/attacks/main.ts --figures [--assault 'fork bomb'] [--target local:runsc] [--turn-seconds 10]
 *
 * tells instead what each kind of attack costs a neighbour: its latencies against quiet, and the server's
 * memory.
 *
 *     node test/attacks/main.ts --suites
 *
 * runs the test files of this directory with ten times as much of what costs much.
 */
import { spawnSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { CAMPAIGNS } from './campaigns/index.ts';
import { ASSAULTS } from './assaults/index.ts';
import { takeFigures } from './figures.ts';
import { isTurn, runTurn } from './support/run-turn.ts';
import { PLATFORMS } from './support/platforms.ts';
import type { TargetOptions } from './support/target.ts';
import { targetName, whyNotHere } from './support/why-not-here.ts';

// Servers make no sandboxes of their own beside those that are looked at.
process.env['CAY_PROBE'] ??= 'off';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    'turn-seconds': { type: 'string' },
    campaign: { type: 'string', multiple: true },
    target: { type: 'string', multiple: true },
    seed: { type: 'string' },
    /** Ends after one turn of that many cases for each pair. */
    cases: { type: 'string' },
    trace: { type: 'boolean', default: false },
    figures: { type: 'boolean', default: false },
    suites: { type: 'boolean', default: false },
    assault: { type: 'string', multiple: true },
  },
});
const MiB = 1024 ** 2;

if (values.suites) {
  const { status } = spawnSync('npx', ['vitest', 'run', 'test/attacks', '--maxWorkers=1'], {
    stdio: 'inherit',
    env: { ...process.env, CAY_TEST_TIER: 'all', CAY_ATTACK_SCALE: '10', CAY_ATTACK_FIGURES: '1' },
  });
  process.exit(status ?? 1);
}

if (values.figures) {
  const chosen = ASSAULTS.filter(({ name }) => values.assault?.some((part) => name.includes(part)) ?? true);
  for (const on of targetsNamed(values.target ?? ['local:runc']))
    await takeFigures(chosen, on, Number(values['turn-seconds'] ?? 10) * 1000);
  process.exit(0);
}

const pairs = CAMPAIGNS.filter(({ name }) => values.campaign?.includes(name) ?? true)
  .flatMap((campaign) => {
    const targets = values.target ? targetsNamed(values.target) : campaign.targets;
    return targets.map((on) => ({ campaign, on, name: targetName(on) }));
  })
  .filter(({ campaign, on, name }) => {
    const reason = whyNotHere(on);
    if (reason !== undefined) console.info(`${campaign.name} on ${name} is skipped: ${reason}`);
    return reason === undefined;
  });
if (pairs.length === 0) {
  console.error(
    `No campaign is left to run\nhint: the campaigns are ${CAMPAIGNS.map(({ name }) => name).join(', ')}`,
  );
  process.exit(64);
}

const cases = values.cases === undefined ? undefined : Number(values.cases);
const end = performance.now() + Number(values.minutes) * 60_000;
const left = () => end - performance.now();
const totals = new Map<string, { cases: number; seconds: number; findings: number }>();
let seed = Number(values.seed ?? Date.now() % 1_000_000);
/** Turns whose server did not start. So many in a row end the run, which then has failed. */
let notBegun = 0;
let notBegunInARow = 0;
const MOST_NOT_BEGUN = 5;

for (let turn = 0; left() > 0 && (cases === undefined || turn < pairs.length); turn++, seed++) {
  const { campaign, on, name } = pairs[turn % pairs.length]!;
  const ms = Math.min(left(), cases === undefined ? Number(values['turn-seconds'] ?? 60) * 1000 : Infinity);
  const trace = values.trace
    ? (number: number, words: string) => console.info(`    ${number} ${words}`)
    : undefined;
  const key = `${campaign.name} on ${name}`;
  const ran = await runTurn(campaign, on, { seed, ms, cases, trace }).catch((error: unknown) => error);
  if (!isTurn(ran)) {
    // A machine that is too busy to start one server may start the next.
    console.info(`${key} seed ${seed}: the turn did not begin: ${String(ran).slice(0, 500)}`);
    notBegun++;
    if (++notBegunInARow === MOST_NOT_BEGUN) break;
    continue;
  }
  notBegunInARow = 0;
  const { findings, ...done } = ran;
  const before = totals.get(key) ?? { cases: 0, seconds: 0, findings: 0 };
  totals.set(key, {
    cases: before.cases + done.cases,
    seconds: before.seconds + done.seconds,
    findings: before.findings + findings.length,
  });
  console.info(
    `${key} seed ${seed}: ${done.cases} cases, ${(done.cases / done.seconds).toFixed(0)}/s, ` +
      `RSS ${Math.round(done.rssBefore / MiB)} → ${Math.round(done.rssAfter / MiB)} MiB, ${findings.length === 0 ? 'ok' : 'FAILED'}`,
  );
  for (const { number, words } of findings) {
    console.info(`  case ${number}: ${words}`);
    console.info(
      `    again: npm run attacks -- --campaign ${campaign.name} --target ${name} --seed ${seed} --cases ${number}`,
    );
  }
}

let failed = 0;
for (const [key, { cases: number, seconds, findings }] of totals) {
  failed += findings;
  console.info(`${key}: ${number} cases in ${Math.round(seconds)} s, ${findings} findings`);
}
console.info(failed === 0 ? 'No attack had an effect.' : `${failed} cases had an effect.`);
if (notBegun > 0) console.info(`${notBegun} turns did not begin.`);
process.exit(failed === 0 && notBegunInARow < MOST_NOT_BEGUN ? 0 : 1);

function targetsNamed(names: readonly string[]): TargetOptions[] {
  const all: TargetOptions[] = [{ backend: 'memory' }, ...PLATFORMS.map(({ target }) => target)];
  return names.map((name) => {
    const found = all.find((on) => targetName(on) === name);
    if (found) return found;
    console.error(`Target "${name}" is unknown\nhint: targets are ${all.map(targetName).join(', ')}`);
    process.exit(64);
  });
}
