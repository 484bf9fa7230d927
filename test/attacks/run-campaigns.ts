import { setTimeout as sleep } from 'node:timers/promises';
import type { Campaign } from './support/campaign.ts';
import { runTurn, type Turn } from './support/run-turn.ts';
import type { TargetOptions } from './support/target.ts';

export interface Pair {
  campaign: Campaign;
  on: TargetOptions;
  /** Of the target. */
  name: string;
}

export interface RunOptions {
  /** Of the first turn; each turn has the next. */
  seed: number;
  ms: number;
  turnMs?: number | undefined;
  /** Ends after one turn of that many cases for each pair. */
  cases?: number | undefined;
  trace: boolean;
  signal: AbortSignal;
}

interface Total {
  turns: number;
  cases: number;
  seconds: number;
  findings: number;
  notBegun: number;
}

const MiB = 1024 ** 2;
const TURN_MS = 60_000;
/** Before a turn that could not begin is tried again: a machine that is too busy now may be free then. */
const AGAIN_MS = 10_000;

/**
 * Lets the pairs take turns until the time is up, prints what each turn did and a summary of all. Gives
 * whether an attack had an effect, or nothing was attacked at all.
 */
export async function runCampaigns(
  pairs: readonly Pair[],
  { seed, ms, turnMs = TURN_MS, cases, trace, signal }: RunOptions,
): Promise<boolean> {
  const end = performance.now() + ms;
  const left = () => (signal.aborted ? 0 : end - performance.now());
  const totals = new Map<string, Total>();

  for (let turn = 0; left() > 0 && (cases === undefined || turn < pairs.length); turn++) {
    const pair = pairs[turn % pairs.length]!;
    const key = `${pair.campaign.name} on ${pair.name}`;
    const total = totals.get(key) ?? { turns: 0, cases: 0, seconds: 0, findings: 0, notBegun: 0 };
    totals.set(key, total);
    const play = () =>
      runTurn(pair.campaign, pair.on, {
        seed: seed + turn,
        ms: Math.min(left(), cases === undefined ? turnMs : Infinity),
        cases,
        signal,
        trace: trace ? (number, words) => console.info(`    ${number} ${words}`) : undefined,
      }).catch((error: unknown) => {
        total.notBegun++;
        console.info(`${key} seed ${seed + turn}: the turn did not begin: ${String(error).slice(0, 1000)}`);
        return undefined;
      });
    let ran = await play();
    if (ran === undefined) {
      await sleep(AGAIN_MS, undefined, { signal }).catch(() => undefined);
      if (left() > 0) ran = await play();
    }
    if (ran === undefined) continue;
    tell(ran, pair, seed + turn);
    total.turns++;
    total.cases += ran.cases;
    total.seconds += ran.seconds;
    total.findings += ran.findings.length;
  }
  return summarize(totals);
}

function tell({ cases, seconds, rssBefore, rssAfter, findings }: Turn, pair: Pair, seed: number): void {
  console.info(
    `${pair.campaign.name} on ${pair.name} seed ${seed}: ${cases} cases, ${(cases / seconds).toFixed(0)}/s, ` +
      `RSS ${Math.round(rssBefore / MiB)} → ${Math.round(rssAfter / MiB)} MiB, ${findings.length === 0 ? 'ok' : 'FAILED'}`,
  );
  for (const { number, words } of findings) {
    console.info(`  case ${number}: ${words}`);
    console.info(
      `    again: npm run attacks -- --campaign ${pair.campaign.name} --target ${pair.name} --seed ${seed} --cases ${number}`,
    );
  }
}

function summarize(totals: ReadonlyMap<string, Total>): boolean {
  const all: Total = { turns: 0, cases: 0, seconds: 0, findings: 0, notBegun: 0 };
  for (const [key, total] of totals) {
    console.info(`${key}: ${inWords(total)}`);
    for (const name of Object.keys(all) as (keyof Total)[]) all[name] += total[name];
  }
  console.info(`All: ${inWords(all)}`);
  console.info(all.findings === 0 ? 'No attack had an effect.' : `${all.findings} cases had an effect.`);
  return all.findings > 0 || all.turns === 0;
}

function inWords({ turns, cases, seconds, findings, notBegun }: Total): string {
  return (
    `${cases} cases in ${turns} turns, ${(seconds / 3600).toFixed(2)} hours, ${findings} findings, ` +
    `${notBegun} turns that could not begin`
  );
}
