import { describe, expect, it } from 'vitest';
import { CAMPAIGNS } from './campaigns/index.ts';
import { whyLater } from '../support/tier.ts';
import { runTurn } from './support/run-turn.ts';
import { targetName, whyNotHere } from './support/why-not-here.ts';

/** How long each campaign attacks each of its targets. The short tier has one target for each campaign. */
const SECONDS = Number(process.env['CAY_ATTACK_SECONDS'] ?? (whyLater() === undefined ? 5 : 2));
const SEED = Number(process.env['CAY_ATTACK_SEED'] ?? Date.now() % 1_000_000);

describe.each(CAMPAIGNS)('the campaign "$name"', (campaign) => {
  const first = campaign.targets.find(({ runtime }) => runtime === 'runc') ?? campaign.targets[0];
  for (const on of campaign.targets) {
    const reason = (on === first ? undefined : whyLater()) ?? whyNotHere(on);
    const name = `has no effect on ${targetName(on)}, seed ${SEED}${reason === undefined ? '' : ` (skipped: ${reason})`}`;
    it.skipIf(reason !== undefined)(name, { timeout: SECONDS * 1000 + 180_000 }, async () => {
      const { findings, cases } = await runTurn(campaign, on, { seed: SEED, ms: SECONDS * 1000 });
      expect(findings).toEqual([]);
      expect(cases).toBeGreaterThan(0);
    });
  }
});
