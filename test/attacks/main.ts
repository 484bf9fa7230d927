/**
 * Random attacks for as long as one likes: `npm run attacks`.
 *
 *     node test/attacks/main.ts [--minutes 120] [--campaign api] [--target local:runc] [--seed 1] [--cases
 * 500] [--trace]
 *
 * Targets are memory, local:runsc, local:runc and docker. Without `--target` each campaign has its own.
 * Campaigns and their targets take turns, each turn on a new server and with a seed of its own, which is
 * printed. `--campaign C --target T --seed S --cases N` plays a turn again up to its case N, once. A turn
 * that cannot begin is tried again once, and counted. The summary comes at the end, on SIGINT and on SIGTERM.
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
import { runCampaigns } from './run-campaigns.ts';
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

// The first signal ends the turn that is under way, and the run with it. The second ends the process.
const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    console.info(`${signal}: the run ends with this turn.`);
    stopping.abort();
  });

const failed = await runCampaigns(pairs, {
  seed: Number(values.seed ?? Date.now() % 1_000_000),
  ms: Number(values.minutes) * 60_000,
  turnMs: values['turn-seconds'] === undefined ? undefined : Number(values['turn-seconds']) * 1000,
  cases: values.cases === undefined ? undefined : Number(values.cases),
  trace: values.trace,
  signal: stopping.signal,
});
process.exit(failed ? 1 : 0);

function targetsNamed(names: readonly string[]): TargetOptions[] {
  const all: TargetOptions[] = [{ backend: 'memory' }, ...PLATFORMS.map(({ target }) => target)];
  return names.map((name) => {
    const found = all.find((on) => targetName(on) === name);
    if (found) return found;
    console.error(`Target "${name}" is unknown\nhint: targets are ${all.map(targetName).join(', ')}`);
    process.exit(64);
  });
}
