import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { codeInterpreterSuite } from './code-interpreter-suite.ts';
import { e2bGround, type E2bPlatform } from './e2b-platform.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's code interpreter is not tested: ${why}`);

describe.skipIf(why).for(['runc', 'runsc'] as const)("E2B's code interpreter on %s", (runtime) => {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await e2bGround(runtime);
  });
  afterAll(() => platform[Symbol.asyncDispose]());
  codeInterpreterSuite(() => platform);
});
