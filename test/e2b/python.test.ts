import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../support/local-ground.ts';
import { e2bGround, type E2bGround } from './ground.ts';
import { PYTHON_CLIENT, pythonClient } from './python-client.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's Python client is not tested: ${why}`);

describe.skipIf(why).each([
  ['runc', 'python_suite', 17],
  ['runsc', 'python_memory_suite', 4],
])(`E2B's Python client (${PYTHON_CLIENT}) on %s`, (runtime, suite, count) => {
  let client: Awaited<ReturnType<typeof pythonClient>>;
  let ground: E2bGround | undefined;
  beforeAll(async () => {
    client = await pythonClient();
    if ('python' in client) ground = await e2bGround(runtime);
  }, 240_000);
  afterAll(() => ground?.[Symbol.asyncDispose]());

  it(`passes ${suite}.py`, { timeout: 90_000 }, async (test) => {
    if (!ground || !('python' in client)) {
      const reason = `it cannot be installed: ${'why' in client ? client.why : 'unknown'}`;
      console.warn(`E2B's Python client is not tested: ${reason}`);
      return test.skip(reason);
    }
    const env = {
      ...process.env,
      E2B_API_URL: ground.url,
      E2B_SANDBOX_URL: ground.url,
      E2B_API_KEY: ground.access.apiKey,
      PYTHONDONTWRITEBYTECODE: '1',
    };
    const { stderr } = await promisify(execFile)(client.python, ['-m', 'unittest', '-v', suite], { cwd: join(import.meta.dirname), env });
    // It tells the count last; a suite in which no test is found succeeds as well.
    expect(Number(/Ran (\d+) tests/.exec(stderr)?.[1])).toBe(count);
    expect(stderr).toMatch(/\nOK\n$/);
  });
});
