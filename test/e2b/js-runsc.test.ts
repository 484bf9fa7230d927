import * as client from 'e2b';
import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-ground.ts';
import { commandsSuite } from './commands-suite.ts';
import { filesSuite } from './files-suite.ts';
import { e2bGround, type E2bGround } from './ground.ts';
import { memorySuite } from './memory-suite.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's clients on gVisor are not tested: ${why}`);

describe.skipIf(why)("E2B's JavaScript client 2.51 on gVisor", () => {
  let ground: E2bGround;
  beforeAll(async () => {
    ground = await e2bGround('runsc');
  });
  afterAll(() => ground[Symbol.asyncDispose]());
  commandsSuite(client, () => ground);
  filesSuite(client, () => ground, { attributes: false });
  memorySuite(client, () => ground);
});
