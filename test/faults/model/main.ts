/**
 * The fault suite: `npm run faults`.
 *
 *     node test/faults/model/main.ts [--rounds 100] [--runtime runc] [--seed 1] [--trace]
 *
 * Each round has a seed of its own, which is printed; `--seed S --rounds 1` plays it again.
 */
import { parseArgs } from 'node:util';
import { FAULT_POINTS } from './fault-points.ts';
import { openInstallation } from './installation.ts';
import { newModel } from './model.ts';
import { playRound } from './round.ts';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '100' },
    runtime: { type: 'string', multiple: true, default: ['runc', 'runsc'] },
    seed: { type: 'string' },
    trace: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
  },
});
const rounds = Number(values.rounds);
const firstSeed = Number(values.seed ?? Date.now() % 1_000_000);
let failed = 0;

for (const runtime of values.runtime) {
  const installation = await openInstallation(runtime);
  const model = newModel();
  const starts: number[] = [];
  const faults = new Map<string, number>();
  const begun = performance.now();
  for (let round = 0; round < rounds; round++) {
    const seed = firstSeed + round;
    const { fault, deeds, startMs, findings } = await playRound({
      installation,
      model,
      seed,
      memory: runtime === 'runsc',
      faultPoints: FAULT_POINTS,
      ...(values.trace && {
        trace: (step) => console.info(`    ${step.deed} ${step.box ?? ''} ${JSON.stringify(step.outcome).slice(0, 160)}`),
      }),
    });
    if (startMs > 0) starts.push(startMs);
    faults.set(fault.replace(/ [\d{].*/, ''), (faults.get(fault.replace(/ [\d{].*/, '')) ?? 0) + 1);
    console.info(`${runtime} seed ${seed}: ${deeds} deeds, ${fault}, ${findings.length === 0 ? 'ok' : 'FAILED'}`);
    for (const finding of findings) console.info(`  ${finding}`);
    if (findings.length > 0) failed++;
  }
  const { acknowledged, refused, unknown } = model;
  starts.sort((a, b) => a - b);
  console.info(
    `${runtime}: ${rounds} rounds in ${Math.round((performance.now() - begun) / 1000)} s, deeds ${acknowledged} done, ${refused} refused, ${unknown} unknown; ` +
      `${starts.length} starts, half of them within ${Math.round(starts[starts.length >> 1] ?? 0)} ms; faults ${JSON.stringify(Object.fromEntries(faults))}`,
  );
  if (!(values.keep && failed > 0)) await installation.destroy();
}
console.info(failed === 0 ? 'Nothing was lost.' : `${failed} rounds found something.`);
process.exit(failed === 0 ? 0 : 1);
