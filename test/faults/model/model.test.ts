/** A few rounds of the fault suite, so that what breaks it is seen early. `npm run faults` plays many. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../support/local-platform.ts';
import { FAULT_POINTS } from './fault-points.ts';
import { CLOCK_LIBRARY, openInstallation, type Installation } from './installation.ts';
import { newModel } from './model.ts';
import { playRound } from './round.ts';
import { STRIKES } from './strikes.ts';

const ROUND_MS = 240_000;
const DISK_BYTES = 4 * 1024 ** 3;
const reason = whyNoLocal();
const strikes = Object.keys(STRIKES).filter((name) => CLOCK_LIBRARY || !STRIKES[name]!.clock);
const firstSeed = Number(process.env['CAY_FAULT_SEED'] ?? Date.now() % 1_000_000);

describe.each([
  { runtime: 'runc', rounds: 3 },
  { runtime: 'runsc', rounds: 2 },
])('random work and random faults on $runtime', ({ runtime, rounds }) => {
  if (reason !== undefined) return it.skip(reason, () => {});
  let installation: Installation;
  const model = newModel();
  beforeAll(async () => {
    installation = await openInstallation(runtime, { diskBytes: DISK_BYTES });
  });
  afterAll(() => installation.destroy());

  it.each(Array.from({ length: rounds }, (_, index) => firstSeed + index))(
    'lose nothing with seed %i',
    async (seed) => {
      const { fault, operations, findings } = await playRound({
        installation,
        model,
        seed,
        memory: runtime === 'runsc',
        faultPoints: FAULT_POINTS,
        strikes,
      });
      console.info(`${runtime} seed ${seed}: ${operations} operations, ${fault}`);
      expect(
        findings,
        `node test/faults/model/main.ts --runtime ${runtime} --seed ${seed} --rounds 1: ${fault}`,
      ).toEqual([]);
      expect(operations).toBeGreaterThan(0);
    },
    ROUND_MS,
  );
});
