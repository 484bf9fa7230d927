/** Runs a file of pytest with packages of PyPI against a live server, and says how many cases passed. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, type TestContext } from 'vitest';
import { pythonPackages } from '../test/e2b/python-packages.ts';
import type { LiveServer } from '../test/support/live-server.ts';

const run = promisify(execFile);

/** Some frameworks want Python 3.12; the one that is first in `PATH` may be older. */
async function interpreter(): Promise<string> {
  const usual = process.env['CAY_PYTHON'];
  if (usual !== undefined) return usual;
  const pyenv = join(process.env['PYENV_ROOT'] ?? join(homedir(), '.pyenv'), 'versions');
  const versions = existsSync(pyenv) ? readdirSync(pyenv).filter((name) => /^3\.1[23]\./.test(name)) : [];
  const kept = versions.map((name) => join(pyenv, name, 'bin/python'));
  for (const name of ['python3.12', 'python3.13', ...kept, 'python3'])
    try {
      const { stdout } = await run(name, ['-c', 'import sys; print(sys.executable)']);
      if (existsSync(stdout.trim())) return stdout.trim();
    } catch {
      continue;
    }
  return 'python3';
}

export async function pythonSuite(
  test: TestContext,
  server: LiveServer,
  suite: { packages: readonly string[]; cwd: string; files: readonly string[]; passes: number },
): Promise<void> {
  const packages = await pythonPackages(suite.packages, await interpreter());
  if ('why' in packages) {
    console.warn(`NOT TESTED: ${suite.files.join(', ')}: its packages cannot be installed: ${packages.why}`);
    return test.skip(packages.why);
  }
  const { stdout } = await run(packages.python, ['-m', 'pytest', '-q', ...suite.files], {
    cwd: suite.cwd,
    env: { ...process.env, ...server.env, PYTHONDONTWRITEBYTECODE: '1' },
    maxBuffer: 64 * 1024 * 1024,
  }).catch((error: { stdout?: string; message: string }) => {
    throw new Error(error.stdout?.slice(-4000) || error.message);
  });
  expect(Number(/^(\d+) passed/m.exec(stdout)?.[1])).toBe(suite.passes);
}
