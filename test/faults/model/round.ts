/**
 * One round: workers do random deeds on many sandboxes, a fault strikes, and then the installation is compared with
 * the model. The seed decides the deeds, the fault and its moment.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { check } from './check.ts';
import type { Installation } from './installation.ts';
import { leaks } from './leaks.ts';
import type { Model } from './model.ts';
import { deedsLeadingTo, step, type Step } from './operations.ts';
import { seeded } from './random.ts';
import { STRIKES } from './strikes.ts';

const WORKERS = 3;
const MOST_SANDBOXES = 6;

export interface RoundOptions {
  installation: Installation;
  model: Model;
  seed: number;
  /** Whether processes can be kept and revived. */
  memory: boolean;
  faultPoints: readonly string[];
  trace?(step: Step): void;
}

export interface RoundResult {
  fault: string;
  deeds: number;
  startMs: number;
  findings: string[];
}

export async function playRound(options: RoundOptions): Promise<RoundResult> {
  const { installation, model, seed, memory, faultPoints, trace } = options;
  const random = seeded(seed);
  const byPoint = faultPoints.length > 0 && random.chance(0.5);
  const point = byPoint ? { [random.pick(faultPoints)]: random.pick(['kill', 'kill', 'error', 'delay:150']) } : undefined;
  // Points are given to a server when it starts.
  if (point) await installation.kill('SIGTERM');
  await installation.start(point);

  let over = false;
  let count = 0;
  let words = 0;
  const durationMs = 600 + random.below(1200);
  const setting = (index: number) => ({
    client: installation.client,
    model,
    random: seeded(seed * 31 + index),
    word: () => `w${seed}x${index}x${words++}`,
    memory,
    favoured: point ? deedsLeadingTo(Object.keys(point)[0]!) : [],
  });
  const worker = async (index: number) => {
    const own = setting(index);
    while (!over && installation.running()) {
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
  let fault = point ? `fault point ${JSON.stringify(point)}` : '';
  if (!point) {
    const name = random.pick(Object.keys(STRIKES));
    await sleep(random.below(durationMs));
    fault = await STRIKES[name]!({ installation, model, random, over: () => over });
  }
  await Promise.race([working, sleep(durationMs)]);
  over = true;
  await working;
  if (point) await installation.kill('SIGTERM');
  const startMs = await installation.start();
  const findings = await check(installation.client, model);
  findings.push(...(await calmLeaks(installation.engineDir)).map((leak) => `left over: ${leak}`));
  return { fault, deeds: count, startMs, findings };
}

/** What is just being made or swept is not left over: only what stays is. */
async function calmLeaks(engineDir: string): Promise<string[]> {
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
