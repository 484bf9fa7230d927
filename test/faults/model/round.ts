/**
 * One round: workers do random operations on many sandboxes, a fault strikes, and then the installation is
 * compared with the model. The seed decides the operations, the fault and its moment.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { check } from './check.ts';
import { TRAVEL_POINTS } from './fault-points.ts';
import type { Installation } from './installation.ts';
import { leaks } from './leaks.ts';
import type { Model } from './model.ts';
import { operationsLeadingTo, step, type Step } from './operations.ts';
import { seeded } from './random.ts';
import { STRIKES } from './strikes.ts';

const WORKERS = 3;
const FEWEST_DEEDS = 15;
const LONGEST_MS = 20_000;
const MOST_SANDBOXES = 6;

export interface RoundOptions {
  installation: Installation;
  model: Model;
  seed: number;
  /** Whether processes can be kept and revived. */
  memory: boolean;
  faultPoints: readonly string[];
  /** The names of the strikes that can happen here. */
  strikes: readonly string[];
  trace?(step: Step): void;
}

export interface RoundResult {
  /** What happened, for people to read. */
  fault: string;
  /** What kind of fault it was, for the tally. */
  kind: string;
  operations: number;
  startMs: number;
  /** How long its parts took: the first start, the operations, the end and second start, the comparison. */
  partsMs: number[];
  findings: string[];
}

export async function playRound(options: RoundOptions): Promise<RoundResult> {
  const { installation, model, seed, memory, faultPoints, strikes, trace } = options;
  const random = seeded(seed);
  const marks = [performance.now()];
  const mark = () => void marks.push(performance.now());
  const byPoint = faultPoints.length > 0 && (strikes.length === 0 || random.chance(0.5));
  const reachable = memory
    ? faultPoints
    : faultPoints.filter((name) => !/^local\.(hibernate|wake)\./.test(name));
  const points = random.chance(0.6) ? reachable.filter((name) => TRAVEL_POINTS.includes(name)) : reachable;
  const name = byPoint ? random.pick(points) : random.pick(strikes);
  const point = byPoint ? { [name]: random.pick(['kill', 'kill', 'error', 'delay:150']) } : undefined;
  const strike = byPoint ? undefined : STRIKES[name]!;
  const fromStart = point !== undefined && random.chance(0.15);
  if (fromStart) await installation.kill('SIGKILL');
  // A clock of its own is given to a server when it starts.
  if (strike?.clock) await installation.kill('SIGTERM');
  const logged = installation.log().length;
  await installation.start({ clock: strike?.clock ?? false, ...(fromStart && { faultPoints: point }) });
  installation.arm(point);

  mark();

  let over = false;
  let count = 0;
  let words = 0;
  const durationMs = 600 + random.below(1200);
  const begun = performance.now();
  // A busy machine gets its operations done, too.
  const enough = () =>
    over ||
    (count >= FEWEST_DEEDS && performance.now() - begun > durationMs) ||
    performance.now() - begun > LONGEST_MS;
  const setting = (index: number) => ({
    client: installation.client,
    model,
    random: seeded(seed * 31 + index),
    word: () => `w${seed}x${index}x${words++}`,
    memory,
    favoured: point ? operationsLeadingTo(name) : (strike?.favoured ?? []),
  });
  const worker = async (index: number) => {
    const own = setting(index);
    while (!enough() && installation.running()) {
      const done = await step(own, MOST_SANDBOXES);
      if (!done) await sleep(10);
      else {
        count++;
        tally(model, done);
        trace?.(done);
        // A server that is gone answers nothing more.
        if ('unknown' in done.outcome) await sleep(5);
      }
    }
  };
  const working = Promise.all(Array.from({ length: WORKERS }, (_, index) => worker(index)));
  let told = '';
  if (strike) {
    await sleep(random.below(durationMs));
    told = await strike.run({ installation, model, random, over: enough });
  }
  await working;
  over = true;
  mark();
  const struck =
    point &&
    (installation.server?.signalCode === 'SIGKILL' ||
      installation.log().slice(logged).includes('Fault on purpose'));
  const reached =
    point && (struck ? ', reached' : Object.values(point)[0] === 'delay:150' ? '' : ', not reached');
  installation.arm();
  // What an error has left is settled by the next server, or by a sweep that nobody waits for here.
  if (strike?.clock || (point && struck)) await installation.kill('SIGTERM');
  const startMs = await installation.start();
  mark();
  const findings = await check(installation.client, model);
  let leaks = await settledLeaks(installation.engineDir);
  // What could not be taken away on a full disk is for the sweep of every minute.
  if (leaks.length > 0 && strike?.disk) {
    await installation.client.call('POST', '/v1/admin/sweep', { body: {} });
    leaks = await settledLeaks(installation.engineDir);
  }
  findings.push(...leaks.map((leak) => `left over: ${leak}`));
  mark();
  const partsMs = marks.slice(1).map((at, index) => Math.round(at - marks[index]!));
  const fault = point ? `fault point ${JSON.stringify(point)}${reached}` : told;
  return {
    fault,
    kind: point ? kindOf(name, point[name]!, reached!) : told.replace(/ \d.*/, ''),
    operations: count,
    startMs,
    partsMs,
    findings,
  };
}

function kindOf(point: string, fault: string, reached: string): string {
  return `${TRAVEL_POINTS.includes(point) ? 'time travel' : 'other'} point, ${fault.replace(/:.*/, '')}${reached}`;
}

/** What is just being made or swept is not left over: only what stays is. */
async function settledLeaks(engineDir: string): Promise<string[]> {
  let found = await leaks(engineDir);
  for (let tries = 0; tries < 20 && found.length > 0; tries++) {
    await sleep(200);
    const again = new Set(await leaks(engineDir));
    found = found.filter((leak) => again.has(leak));
  }
  return found;
}

function tally(model: Model, { outcome }: Step): void {
  if ('done' in outcome) model.acknowledged++;
  else if ('refused' in outcome) model.refused++;
  else model.unknown++;
}
