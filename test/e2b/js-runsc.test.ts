import * as newest from 'e2b';
import * as older from 'e2b-2.45';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-ground.ts';
import { commandsSuite } from './commands-suite.ts';
import { filesSuite } from './files-suite.ts';
import { e2bGround, type E2bGround } from './ground.ts';
import { memorySuite } from './memory-suite.ts';
import { sandboxesSuite } from './sandboxes-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's clients on gVisor are not tested: ${why}`);

describe.skipIf(why).for([
  ['2.51', newest],
  // An older client of the same shape, as far as the suites use it.
  ['2.45', older as unknown as typeof newest],
] as const)("E2B's JavaScript client %s on gVisor", ([, client]) => {
  let ground: E2bGround;
  beforeAll(async () => {
    ground = await e2bGround('runsc');
  });
  afterAll(() => ground[Symbol.asyncDispose]());
  commandsSuite(client, () => ground);
  filesSuite(client, () => ground, { attributes: false });
  sandboxesSuite(client, () => ground);
  memorySuite(client, () => ground);
});
