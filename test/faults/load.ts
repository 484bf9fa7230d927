/**
 * Many sandboxes and many clients at once: `node test/faults/load.ts [--sandboxes 300] [--clients 50]
 * [--seconds 300] [--runtime runc]`. Every error that is not a typed refusal fails it; it prints how long
 * calls took.
 */
import { parseArgs } from 'node:util';
import type { Outcome } from './model/client.ts';
import { openInstallation } from './model/installation.ts';
import { seeded, type Random } from './model/random.ts';

const { values } = parseArgs({
  options: {
    sandboxes: { type: 'string', default: '300' },
    clients: { type: 'string', default: '50' },
    seconds: { type: 'string', default: '300' },
    runtime: { type: 'string', default: 'runc' },
  },
});
const installation = await openInstallation(values.runtime);
await installation.start();
const { client } = installation;
const live: string[] = [];
const times = new Map<string, number[]>();
const outcomes = { done: 0, refused: new Map<string, number>(), failed: [] as string[] };

async function timed(what: string, call: () => Promise<Outcome<unknown>>): Promise<Outcome<unknown>> {
  const begun = performance.now();
  const outcome = await call();
  const all = times.get(what) ?? [];
  all.push(performance.now() - begun);
  times.set(what, all);
  if ('done' in outcome) outcomes.done++;
  else if ('refused' in outcome)
    outcomes.refused.set(outcome.refused, (outcomes.refused.get(outcome.refused) ?? 0) + 1);
  else outcomes.failed.push(`${what}: ${outcome.unknown}`);
  return outcome;
}

const make = async () => {
  const outcome = await timed('create', () =>
    client.call('POST', '/v1/sandboxes', { body: { limits: { memoryBytes: 256 * 1024 * 1024 } } }),
  );
  if ('done' in outcome) live.push((outcome.done as { id: string }).id);
};

const begun = performance.now();
const wanted = Number(values.sandboxes);
await Promise.all(
  Array.from({ length: 8 }, async (_, index) => {
    for (let count = index; count < wanted; count += 8) await make();
  }),
);
console.info(`${live.length} sandboxes after ${Math.round((performance.now() - begun) / 1000)} s`);

const until = performance.now() + Number(values.seconds) * 1000;
async function work(random: Random): Promise<void> {
  while (performance.now() < until) {
    const id = random.pick(live);
    const at = `/v1/sandboxes/${id}`;
    const chance = random.below(100);
    if (chance < 50)
      await timed('exec', () => client.call('POST', `${at}/exec`, { body: { argv: ['true'] } }));
    else if (chance < 65)
      await timed('write', () =>
        client.call('PUT', `${at}/files?path=/home/user/note`, { raw: 'x'.repeat(random.below(65_536)) }),
      );
    else if (chance < 80) await timed('stat', () => client.call('GET', `${at}/files/stat?path=/home/user`));
    else if (chance < 88) await timed('stats', () => client.call('GET', `${at}/stats`));
    else if (chance < 93) await timed('list', () => client.call('GET', '/v1/sandboxes?limit=100'));
    else if (chance < 97)
      await timed('turn', () => client.call('POST', `${at}/turns`, { body: { waitMs: 0 } }));
    else {
      const index = live.indexOf(id);
      if (index >= 0) live.splice(index, 1);
      await timed('remove', () => client.call('DELETE', at));
      await make();
    }
  }
}
await Promise.all(Array.from({ length: Number(values.clients) }, (_, index) => work(seeded(index + 1))));

const quantile = (all: number[], share: number) =>
  all[Math.min(all.length - 1, Math.floor(all.length * share))]!.toFixed(0);
for (const [what, all] of times) {
  all.sort((a, b) => a - b);
  console.info(
    `${what.padEnd(7)} ${String(all.length).padStart(7)} calls, p50 ${quantile(all, 0.5)} ms, p99 ${quantile(all, 0.99)} ms`,
  );
}
console.info(
  `done ${outcomes.done}, refused ${JSON.stringify(Object.fromEntries(outcomes.refused))}, failed ${outcomes.failed.length}`,
);
for (const failure of outcomes.failed.slice(0, 10)) console.info(`  ${failure}`);
await installation.destroy();
process.exit(outcomes.failed.length === 0 ? 0 : 1);
