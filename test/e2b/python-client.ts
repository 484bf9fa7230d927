/** E2B's Python client in an environment of its own, made once and kept outside the checkout. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
export const PYTHON_CLIENT = 'e2b==2.63.0';
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'cay-tests');

/** The interpreter that has the client, or why there is none. */
export async function pythonClient(): Promise<{ python: string } | { why: string }> {
  const directory = join(CACHE, PYTHON_CLIENT.replace('==', '-'));
  const python = join(directory, 'bin', 'python');
  const complete = join(directory, 'complete');
  if (existsSync(complete)) return { python };
  try {
    await rm(directory, { recursive: true, force: true });
    await mkdir(CACHE, { recursive: true });
    await run('python3', ['-m', 'venv', directory]);
    await run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--retries', '1', PYTHON_CLIENT], {
      timeout: 180_000,
    });
    await writeFile(complete, '');
    return { python };
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    const { stderr, message } = error as Error & { stderr?: string };
    return { why: (stderr || message).trim().split('\n').at(-1)! };
  }
}
