/** Builds a current gVisor from its published source, where the distribution has an old one. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { CURRENT_RUNSC, findRunsc, runscDate } from '../../host/runtimes/find-runsc.ts';
import { parseVersion } from '../../host/runtimes/parse-version.ts';

const REPOSITORY = join(import.meta.dirname, '../../../..');
const VERSION_TIMEOUT_MS = 10_000;

export interface InstalledGvisor {
  program: string;
  version: string;
  /** False if a current one was there already. */
  built: boolean;
}

interface InstallOptions {
  /** Where the repository is. The npm package has no scripts. */
  root?: string;
  /** Builds also if a current version is there. */
  force?: boolean;
  env?: NodeJS.ProcessEnv;
}

/** What the build does is shown on standard error. Rejects if it cannot build here. */
export async function installGvisor({
  root = REPOSITORY,
  force = false,
  env = process.env,
}: InstallOptions = {}): Promise<InstalledGvisor> {
  const present = findRunsc(env);
  const version = versionOf(present, env);
  if (!force && (runscDate(version) ?? 0) >= CURRENT_RUNSC)
    return { program: present, version, built: false };
  const script = join(root, 'scripts/build-runsc');
  if (!existsSync(script))
    throw new CayError('unsupported', 'The npm package has no sources to build gVisor from', {
      hint: "install runsc from gVisor's own package repository, or run this in a clone of the repository",
    });
  if (!hasGo(env))
    throw new CayError('failed_precondition', 'gVisor is built with Go, and there is no "go" in PATH', {
      hint: "install Go, or install runsc from gVisor's own package repository",
    });
  const program = await build(script, env);
  return { program, version: versionOf(program, env), built: true };
}

export function hasGo(env: NodeJS.ProcessEnv = process.env): boolean {
  return (env['PATH'] ?? '').split(':').some((directory) => existsSync(join(directory, 'go')));
}

function versionOf(program: string, env: NodeJS.ProcessEnv): string {
  const { status, stdout } = spawnSync(program, ['--version'], {
    encoding: 'utf8',
    env,
    timeout: VERSION_TIMEOUT_MS,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return status === 0 ? parseVersion('runsc', stdout) : '';
}

/** The last line that the script prints is the path of the program. */
async function build(script: string, env: NodeJS.ProcessEnv): Promise<string> {
  const child = spawn(script, { env, stdio: ['ignore', 'pipe', 2] });
  let printed = '';
  child.stdout?.on('data', (chunk: Buffer) => (printed = (printed + chunk.toString()).slice(-4096)));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject).on('close', resolve);
  });
  const program = printed.trim().split('\n').at(-1) ?? '';
  if (code === 0 && program.startsWith('/')) return program;
  throw new CayError('unavailable', 'gVisor could not be built', {
    hint: `read what was printed above, or run ${script}`,
  });
}
