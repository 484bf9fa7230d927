import * as newest from 'e2b';
import * as older from 'e2b-2.45';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { commandsSuite } from './commands-suite.ts';
import { filesSuite } from './files-suite.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';
import { memorySuite } from './memory-suite.ts';
import { sandboxesSuite } from './sandboxes-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's clients on gVisor are not tested: ${why}`);

describe.skipIf(why).for([
  ['2.51', newest, { inside: true }],
  // An older client of the same shape, as far as the suites use it. What it says to a sandbox itself is the
  // same, and is tested on runc.
  ['2.45', older as unknown as typeof newest, { inside: false }],
] as const)("E2B's JavaScript client %s on gVisor", ([, client, { inside }]) => {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await openE2bPlatform('runsc');
  });
  afterAll(() => platform[Symbol.asyncDispose]());
  if (inside) commandsSuite(client, () => platform);
  if (inside) filesSuite(client, () => platform);
  sandboxesSuite(client, () => platform);
  memorySuite(client, () => platform);
});
