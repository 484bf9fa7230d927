import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';
import { pythonPackages } from './python-packages.ts';

const CLIENT = ['e2b==2.63.0', 'e2b-code-interpreter==2.11.5'];
const SUITES = ['python_suite', 'python_templates_suite', 'python_interpreter_suite'];
const why = whyNoLocal();
if (why) console.warn(`E2B's Python client is not tested: ${why}`);

pythonSuites('runc', SUITES, why ?? whyLater());
pythonSuites('runsc', [...SUITES, 'python_memory_suite'], why);

function pythonSuites(
  runtime: 'runc' | 'runsc',
  suites: readonly string[],
  reason: string | undefined,
): void {
  const title = `E2B's Python client (${CLIENT.join(', ')}) on ${runtime}`;
  if (reason === undefined) describe(title, () => pythonClient(runtime, suites));
  else it.skip(`${title} (${reason})`, () => {});
}

function pythonClient(runtime: 'runc' | 'runsc', suites: readonly string[]): void {
  let client: Awaited<ReturnType<typeof pythonPackages>>;
  let platform: E2bPlatform | undefined;
  beforeAll(async () => {
    client = await pythonPackages(CLIENT);
    if ('python' in client) platform = await openE2bPlatform(runtime);
  }, 240_000);
  afterAll(() => platform?.[Symbol.asyncDispose]());

  it.for(suites)('passes %s.py', { timeout: 120_000 }, async (suite, test) => {
    if (!platform || !('python' in client)) {
      const reason = `it cannot be installed: ${'why' in client ? client.why : 'unknown'}`;
      console.warn(`E2B'S PYTHON CLIENT IS NOT TESTED: ${reason}`);
      return test.skip(reason);
    }
    const env = {
      ...process.env,
      E2B_API_URL: platform.url,
      E2B_SANDBOX_URL: platform.url,
      E2B_API_KEY: platform.access.apiKey,
      CAY_STRANGER_KEY: platform.stranger.apiKey,
      CAY_RUNTIME: runtime,
      PYTHONDONTWRITEBYTECODE: '1',
    };
    const { stderr } = await promisify(execFile)(client.python, ['-m', 'unittest', '-v', suite], {
      cwd: import.meta.dirname,
      env,
    });
    // It tells the count last; a suite in which no test is found succeeds as well.
    const written = readFileSync(join(import.meta.dirname, `${suite}.py`), 'utf8').match(
      /def test_/g,
    )!.length;
    expect(Number(/Ran (\d+) tests/.exec(stderr)?.[1])).toBe(written);
    expect(stderr).toMatch(/\nOK\n$/);
  });
}
