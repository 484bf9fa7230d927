import * as newest from 'e2b';
import * as older from 'e2b-2.45';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';
import { templatesSuite } from './templates-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`Template builds of E2B's clients are not tested: ${why}`);

const later = whyLater();
if (later) console.info(`Template builds of E2B's clients on runc: ${later}`);

describe.skipIf(why).for([
  ['2.51', 'runsc', newest],
  ...(later
    ? []
    : ([
        ['2.51', 'runc', newest],
        // An older client of the same shape, as far as the suite uses it.
        ['2.45', 'runc', older as unknown as typeof newest],
      ] as const)),
] as const)("E2B's JavaScript client %s on %s", ([, runtime, client]) => {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await openE2bPlatform(runtime);
  });
  afterAll(() => platform[Symbol.asyncDispose]());
  templatesSuite(client, () => platform, { memory: runtime === 'runsc' });
});
