import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-ground.ts';
import { codeInterpreterSuite } from './code-interpreter-suite.ts';
import { e2bGround, type E2bGround } from './ground.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's code interpreter is not tested: ${why}`);

describe.skipIf(why).for(['runc', 'runsc'] as const)("E2B's code interpreter on %s", (runtime) => {
  let ground: E2bGround;
  beforeAll(async () => {
    ground = await e2bGround(runtime);
  });
  afterAll(() => ground[Symbol.asyncDispose]());
  codeInterpreterSuite(() => ground);
});
