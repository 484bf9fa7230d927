/** Builds and installs what sandboxes on this machine need, where it is missing or out of date. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/client';
import { hasGo } from './install-gvisor.ts';
import { errorColour, note } from './output.ts';

const REPOSITORY = join(import.meta.dirname, '../../../..');
/** Root's programs are not in the PATH of every shell. */
const SYSTEM_PATH = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
const PROGRAMS = ['runsc', 'runc', 'mkfs.btrfs'];

interface HostOptions {
  /** Where the repository is. The npm package has no scripts, and brings its guest along. */
  root?: string;
  isRoot?: boolean;
  path?: readonly string[];
}

/** Returns at once if nothing is missing. What it does is shown on standard error. */
export function prepareHost(
  backends: readonly string[],
  { root = REPOSITORY, isRoot = process.getuid?.() === 0, path = pathDirectories() }: HostOptions = {},
): void {
  const script = (name: string) => join(root, 'scripts', name);
  const local = backends.includes('local');
  if (!local && !backends.includes('docker')) return;
  if (existsSync(script('build-guest')) && !isBuilt(join(root, 'guest')))
    run('building the guest', script('build-guest'));
  const missing = PROGRAMS.filter(
    (program) => !path.some((directory) => existsSync(join(directory, program))),
  );
  // Without root the backend refuses, and says what to do.
  if (!local || !isRoot || missing.length === 0 || !existsSync(script('install-host'))) return;
  run(`installing Debian packages for ${missing.join(', ')}`, script('install-host'));
  if (missing.includes('runsc') && hasGo())
    note(errorColour.dim('"cay install gvisor" builds a current gVisor, which is faster than Debian\'s'));
}

/** Whether the guest's program is there, and as new as its sources: a clone may have been updated since. */
function isBuilt(guest: string): boolean {
  const built = modified(join(guest, 'target/release/cay-guest'));
  const sources = existsSync(join(guest, 'src')) ? readdirSync(join(guest, 'src'), { recursive: true }) : [];
  return built > 0 && sources.every((source) => modified(join(guest, 'src', String(source))) <= built);
}

/** When it was written, or 0 if it does not exist. */
function modified(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

function pathDirectories(): string[] {
  return [...SYSTEM_PATH, ...(process.env['PATH'] ?? '').split(':')];
}

function run(what: string, script: string): void {
  note(errorColour.dim(`${what}…`));
  const { status, error } = spawnSync(script, { stdio: ['ignore', 2, 2] });
  if (status === 0) return;
  throw new CayError('unavailable', `Failed while ${what}`, {
    cause: error,
    hint: `run ${script} and read what it prints`,
  });
}
