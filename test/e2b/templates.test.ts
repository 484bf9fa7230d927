import * as client from 'e2b';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-ground.ts';
import { e2bGround, type E2bGround } from './ground.ts';
import { templatesSuite } from './templates-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`Template builds of E2B's clients are not tested: ${why}`);

describe.skipIf(why).for(['runc', 'runsc'] as const)("E2B's JavaScript client on %s", (runtime) => {
  let ground: E2bGround;
  beforeAll(async () => {
    ground = await e2bGround(runtime);
  });
  afterAll(() => ground[Symbol.asyncDispose]());
  templatesSuite(client, () => ground, { memory: runtime === 'runsc' });
});
