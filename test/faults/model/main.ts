/**
 * The fault suite: `npm run faults`.
 *
 *     node test/faults/model/main.ts [--rounds 100] [--runtime runc] [--seed 1] [--strike full | --point
 * rollback] [--trace]
 *
 * Each round has a seed of its own, which is printed; `--seed S --rounds 1` plays it again.
 */
import { parseArgs } from 'node:util';
import { FAULT_POINTS } from './fault-points.ts';
import { CLOCK_LIBRARY, openInstallation } from './installation.ts';
import { newModel } from './model.ts';
import { playRound } from './round.ts';
import { STRIKES } from './strikes.ts';

// Servers make no sandboxes of their own beside those that are looked at.
process.env['CAY_PROBE'] ??= 'off';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '100' },
    runtime: { type: 'string', multiple: true, default: ['runc', 'runsc'] },
    seed: { type: 'string' },
    /** Only this kind of fault. */
    strike: { type: 'string' },
    /** Only fault points whose names contain this. */
    point: { type: 'string' },
    trace: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
  },
});
/** Room for what the suite makes, and quick to fill. */
const DISK_BYTES = 4 * 1024 ** 3;
const rounds = Number(values.rounds);
const firstSeed = Number(values.seed ?? Date.now() % 1_000_000);
let failed = 0;

if (!CLOCK_LIBRARY) console.info('No clock is moved: libfaketime is not installed (Debian: faketime)');
const strikes =
  values.strike === undefined
    ? Object.keys(STRIKES).filter((name) => CLOCK_LIBRARY || !STRIKES[name]!.clock)
    : [values.strike];

for (const runtime of values.runtime) {
  const installation = await openInstallation(runtime, { diskBytes: DISK_BYTES });
  const model = newModel();
  const starts: number[] = [];
  const faults = new Map<string, number>();
  const begun = performance.now();
  for (let round = 0; round < rounds; round++) {
    const seed = firstSeed + round;
    const { fault, kind, operations, startMs, partsMs, findings } = await playRound({
      installation,
      model,
      seed,
      memory: runtime === 'runsc',
      faultPoints:
        values.strike === undefined ? FAULT_POINTS.filter((point) => point.includes(values.point ?? '')) : [],
      strikes: values.point === undefined ? strikes : [],
      ...(values.trace && {
        trace: (step) =>
          console.info(
            `    ${step.operation} ${step.box ?? ''} ${JSON.stringify(step.outcome).slice(0, 160)}`,
          ),
      }),
    });
    if (startMs > 0) starts.push(startMs);
    faults.set(kind, (faults.get(kind) ?? 0) + 1);
    console.info(
      `${runtime} seed ${seed}: ${operations} operations, ${fault}, ${findings.length === 0 ? 'ok' : 'FAILED'} (${partsMs.map((ms) => (ms / 1000).toFixed(1)).join(' + ')} s)`,
    );
    for (const finding of findings) console.info(`  ${finding}`);
    if (findings.length > 0) failed++;
  }
  const { acknowledged, refused, unknown } = model;
  starts.sort((a, b) => a - b);
  console.info(
    `${runtime}: ${rounds} rounds in ${Math.round((performance.now() - begun) / 1000)} s, operations ${acknowledged} done, ${refused} refused, ${unknown} unknown; ` +
      `${starts.length} starts, half of them within ${Math.round(starts[starts.length >> 1] ?? 0)} ms; faults ${JSON.stringify(Object.fromEntries(faults))}`,
  );
  if (!(values.keep && failed > 0)) await installation.destroy();
}
console.info(failed === 0 ? 'Nothing was lost.' : `${failed} rounds found something.`);
process.exit(failed === 0 ? 0 : 1);
