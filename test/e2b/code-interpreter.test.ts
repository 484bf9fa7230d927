import { afterAll, beforeAll, describe } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { codeInterpreterSuite } from './code-interpreter-suite.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's code interpreter is not tested: ${why}`);

for (const runtime of ['runc', 'runsc'] as const) {
  const reason = why ?? (runtime === 'runc' ? whyLater() : undefined);
  const title = `E2B's code interpreter on ${runtime}${reason ? ` (skipped: ${reason})` : ''}`;
  describe.skipIf(reason !== undefined)(title, () => {
    let platform: E2bPlatform;
    beforeAll(async () => {
      platform = await openE2bPlatform(runtime);
    });
    afterAll(() => platform[Symbol.asyncDispose]());
    codeInterpreterSuite(() => platform);
  });
}
