/** Packages of PyPI in a directory of their own, made once and kept outside the checkout. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface PythonPackages {
  /** The interpreter of the environment that they are in. */
  python: string;
  /** Where they lie. */
  site: string;
}

const run = promisify(execFile);
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'cay-tests');

/** Where they are, or why they are not. `interpreter` is the one that they are for. */
export async function pythonPackages(
  wanted: readonly string[],
  interpreter = 'python3',
): Promise<PythonPackages | { why: string }> {
  const directory = join(CACHE, wanted.join('+').replaceAll('==', '-'));
  const python = join(directory, 'bin', 'python');
  const complete = join(directory, 'complete');
  try {
    if (!existsSync(complete)) {
      await rm(directory, { recursive: true, force: true });
      await mkdir(CACHE, { recursive: true });
      await run(interpreter, ['-m', 'venv', directory]);
      const quiet = ['--quiet', '--disable-pip-version-check', '--no-compile', '--retries', '1'];
      // Of many packages pip takes minutes to choose the versions.
      const quick = await run(python, ['-m', 'pip', 'install', ...quiet, 'uv']).then(
        () => true,
        () => false,
      );
      const install = quick ? ['-m', 'uv', 'pip', 'install', '--quiet'] : ['-m', 'pip', 'install', ...quiet];
      await run(python, [...install, ...wanted], { timeout: 180_000 });
      await writeFile(complete, '');
    }
    const { stdout } = await run(python, ['-c', 'import sysconfig; print(sysconfig.get_path("platlib"))']);
    return { python, site: stdout.trim() };
  } catch (error) {
    if (!existsSync(complete)) await rm(directory, { recursive: true, force: true });
    const { stderr, message } = error as Error & { stderr?: string };
    return { why: (stderr || message).trim().split('\n').at(-1)! };
  }
}
