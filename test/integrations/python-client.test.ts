/** The Python package against a live server, with its types checked. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pythonPackages } from '../e2b/python-packages.ts';
import { liveServer, type LiveServer } from '../support/live-server.ts';
import { whyNoLocal } from '../support/local-platform.ts';

const PACKAGE = join(import.meta.dirname, '../../integrations/python');
const NEEDED = ['httpx==0.28.1', 'mypy==2.4.1', 'pytest==9.2.0', 'pytest-asyncio==1.5.0'];
const why = whyNoLocal();
if (why) console.warn(`The Python package is not tested: ${why}`);

describe.skipIf(why)('the Python package', () => {
  let packages: Awaited<ReturnType<typeof pythonPackages>>;
  let server: LiveServer | undefined;
  beforeAll(async () => {
    packages = await pythonPackages(NEEDED);
    if ('python' in packages) server = await liveServer({ CAY_RUNTIME: 'runc' });
  }, 240_000);
  afterAll(() => server?.[Symbol.asyncDispose]());

  const run = (python: string, args: string[]) =>
    promisify(execFile)(python, args, {
      cwd: PACKAGE,
      env: { ...process.env, ...server?.env, PYTHONDONTWRITEBYTECODE: '1' },
    });

  it.for([
    ['passes mypy --strict', ['-m', 'mypy', '--strict', '--cache-dir=/dev/null'], /Success: no issues found/],
    ['passes its own suite', ['-m', 'pytest', '-q', 'tests/test_client.py'], /^\d+ passed in/m],
  ] as const)('%s', { timeout: 180_000 }, async ([, args, wanted], test) => {
    if (!server || !('python' in packages)) {
      const reason = `its packages cannot be installed: ${'why' in packages ? packages.why : 'unknown'}`;
      console.warn(`THE PYTHON PACKAGE IS NOT TESTED: ${reason}`);
      return test.skip(reason);
    }
    const { stdout } = await run(packages.python, [...args]);
    expect(stdout).toMatch(wanted);
  });
});
