import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Sandbox } from '@e2b/code-interpreter';
import { pythonPackages } from './python-packages.ts';

/** The Python that sandboxes have. */
const PYTHON = '/usr/bin/python3';
const MOST_BYTES = 1024 ** 3;

/** A sandbox has no network, so what it is to have is brought. Resolves why it cannot be. */
export async function bringMatplotlib(sandbox: Sandbox): Promise<string | undefined> {
  const packages = await pythonPackages(['matplotlib==3.11.2', 'pandas==3.*', 'ipython==9.*'], PYTHON);
  if ('why' in packages) return packages.why;
  const unneeded = ['pip*', 'setuptools*', 'tests', '__pycache__', '*.pyi'].map(
    (pattern) => `--exclude=${pattern}`,
  );
  const { stdout: archive } = await promisify(execFile)(
    'tar',
    ['-C', packages.site, ...unneeded, '-cf', '-', '.'],
    {
      encoding: 'buffer',
      maxBuffer: MOST_BYTES,
    },
  );
  await sandbox.files.write('/tmp/site.tar', new Blob([archive]), { requestTimeoutMs: 120_000 });
  await sandbox.commands.run(
    'site=$(python3 -m site --user-site); mkdir -p "$site" && tar -C "$site" -xf /tmp/site.tar && rm /tmp/site.tar',
    {
      timeoutMs: 120_000,
    },
  );
  return undefined;
}
