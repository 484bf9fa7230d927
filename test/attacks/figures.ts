/**
 * What one tenant's attack costs another: how long `exec true` and `/healthz` take the neighbour, quiet and
 * under each assault, and how much memory the server takes. Each assault has a server of its own.
 *
 * Attacker and neighbour share the machine with the server, which remote ones do not. So the attacker gets
 * what is left of the processors (nice 19), and the neighbour, which only measures, gets them first (nice
 * -20). What still has nothing to do with the server shows in the column "machine": the same neighbour calls
 * an idle server beside the one that is attacked, at the same time and with the same weight.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { loadavg, setPriority } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { series } from '../../bench/measure.ts';
import { environment } from '../../bench/report.ts';
import type { Assault } from './assaults/assault.ts';
import type { Latencies, NeighbourOptions } from './support/neighbour.ts';
import { startTarget, type Target, type TargetOptions } from './support/target.ts';
import { targetName } from './support/why-not-here.ts';

const NEIGHBOUR = join(import.meta.dirname, 'support/neighbour.ts');
const IDLE_SERVER = join(import.meta.dirname, 'support/idle-server.ts');
const ATTACKER_NICE = 19;
const NEIGHBOUR_NICE = -20;
/** The weight that the server's own group of processes has. */
const SERVER_NICE = -10;
const WARM_UP_MS = 1500;
const REST_MS = 3000;
/** What a neighbour may be slowed down by. */
const AIM = 3;
const MiB = 1024 ** 2;

export interface Figures {
  assault: string;
  target: string;
  /** How often the attack was carried out. */
  attacks: number;
  exec: Pair;
  healthz: Pair;
  /** Of calls to an idle server beside it: what the machine makes of any of them. */
  machine: Pair;
  /** Runnable processes on the machine, before the attack and at its end: others may be working, too. */
  load: { before: number; after: number };
  /** Calls of the neighbour that failed under attack. */
  failed: number;
  rssMiB: { before: number; peak: number; after: number };
  /** How the server is a while later. */
  server: 'well' | 'does not answer' | 'ended';
}

interface Pair {
  quiet: { p50: number; p99: number };
  attacked: { p50: number; p99: number };
  ratio: { p50: number; p99: number };
}

export async function takeFigures(
  assaults: readonly Assault[],
  on: TargetOptions,
  ms: number,
): Promise<Figures[]> {
  const all: Figures[] = [];
  console.info(
    `${'assault'.padEnd(40)} exec p50   p99  ×p50  ×p99 | healthz p50   p99  ×p50  ×p99 | machine p99  ×p99 | load | RSS before peak after MiB | attacks`,
  );
  for (const assault of assaults) {
    const figures = await underAssault(assault, on, ms);
    all.push(figures);
    console.info(lineOf(figures));
  }
  const missed = all
    .filter(({ exec, healthz }) => Math.max(exec.ratio.p99, healthz.ratio.p99) > AIM)
    .map(({ assault }) => assault);
  console.info(
    missed.length === 0
      ? `Every p99 is within ${AIM} times the quiet one.`
      : `Beyond ${AIM} times: ${missed.join(', ')}`,
  );
  const directory = join(import.meta.dirname, '../../bench/results');
  mkdirSync(directory, { recursive: true });
  const path = join(directory, `neighbours-${targetName(on).replace(':', '-')}-${Date.now()}.json`);
  writeFileSync(path, JSON.stringify({ environment: environment(), figures: all }, null, 2));
  console.info(`saved as ${path}`);
  return all;
}

async function underAssault(assault: Assault, on: TargetOptions, ms: number): Promise<Figures> {
  await using target = await startTarget(on);
  const { id: sandbox } = await target.bob.create();
  const attack = await assault.open(target);
  const idle = fork(IDLE_SERVER, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const [idleUrl] = (await once(idle, 'message')) as [string];
  const options: NeighbourOptions = { url: target.url, key: target.bob.key, sandbox, idleUrl };
  const neighbour = fork(NEIGHBOUR, [JSON.stringify(options)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  setPriority(idle.pid!, SERVER_NICE);
  setPriority(neighbour.pid!, NEIGHBOUR_NICE);
  // Every thread has a priority of its own.
  const prioritize = (nice: number) => {
    for (const thread of readdirSync('/proc/self/task')) setPriority(Number(thread), nice);
  };
  const load = loadavg()[0]!;
  prioritize(ATTACKER_NICE);
  try {
    await sleep(WARM_UP_MS);
    await latencies(neighbour);
    await sleep(ms);
    const quiet = await latencies(neighbour);
    const rss = rssOf(target);
    let attacks = 0;
    let peak = rss;
    const watch = setInterval(() => (peak = Math.max(peak, rssOf(target))), 50);
    const over = new AbortController();
    const running = attack.run(over.signal, () => attacks++);
    await Promise.race([sleep(ms), running]);
    const attacked = await latencies(neighbour);
    over.abort();
    await Promise.race([running.catch(() => {}), sleep(REST_MS)]);
    clearInterval(watch);
    await sleep(REST_MS);
    const answers = await target.requireAlive().then(
      () => true,
      () => false,
    );
    const after = rssOf(target);
    return {
      assault: assault.name,
      target: targetName(on),
      attacks,
      exec: pairOf(quiet.exec, attacked.exec),
      healthz: pairOf(quiet.healthz, attacked.healthz),
      machine: pairOf(quiet.idle, attacked.idle),
      load: { before: load, after: loadavg()[0]! },
      failed: attacked.failed,
      rssMiB: { before: rss, peak: Math.max(peak, after), after },
      server: answers ? 'well' : after > 0 ? 'does not answer' : 'ended',
    };
  } finally {
    prioritize(0);
    neighbour.kill();
    idle.kill();
  }
}

/** What the neighbour has measured since it was asked last. */
async function latencies(neighbour: ChildProcess): Promise<Latencies> {
  const answer = once(neighbour, 'message');
  neighbour.send('tell');
  return ((await answer) as [Latencies])[0];
}

/** 0 if the server has ended. */
function rssOf(target: Target): number {
  try {
    return Math.round(target.rssBytes() / MiB);
  } catch {
    return 0;
  }
}

function pairOf(quietSamples: number[], attackedSamples: number[]): Pair {
  // Who was not answered once has waited all the time.
  const [quiet, attacked] = [
    series(quietSamples),
    series(attackedSamples.length === 0 ? [Infinity] : attackedSamples),
  ];
  return { quiet, attacked, ratio: { p50: attacked.p50 / quiet.p50, p99: attacked.p99 / quiet.p99 } };
}

function lineOf({ assault, exec, healthz, machine, load, rssMiB, attacks, failed, server }: Figures): string {
  const cell = (value: number, width: number) => value.toFixed(value < 100 ? 1 : 0).padStart(width);
  const half = ({ attacked, ratio }: Pair, width: number) =>
    `${cell(attacked.p50, width)} ${cell(attacked.p99, 6)} ${cell(ratio.p50, 5)} ${cell(ratio.p99, 5)}`;
  const rss = `${cell(rssMiB.before, 10)} ${cell(rssMiB.peak, 5)} ${cell(rssMiB.after, 5)}`;
  const end = `${attacks}${failed > 0 ? `, ${failed} calls failed` : ''}${server === 'well' ? '' : `, THE SERVER ${server.toUpperCase()}`}`;
  const floor = `${cell(machine.attacked.p99, 11)} ${cell(machine.ratio.p99, 5)} | ${load.before.toFixed(1).padStart(4)}`;
  return `${assault.padEnd(40)} ${half(exec, 8)} | ${half(healthz, 11)} | ${floor} | ${rss}     | ${end}`;
}
