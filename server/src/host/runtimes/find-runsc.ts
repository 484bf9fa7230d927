/**
 * Which `runsc` to use: the one that the operator names, or else the newest of those in `PATH` and of those
 * that `scripts/build-runsc` has built. A version that does not tell its date is not used by itself.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { parseVersion } from './parse-version.ts';
import { isExecutable } from '../../lib/is-executable.ts';

/** The first with the systrap platform as its default. Before, only ptrace works without virtualisation. */
export const OLDEST_RUNSC = 20230621;
/** From here on an idle sandbox takes no processor time, and symlinks can be listed. */
export const CURRENT_RUNSC = 20250101;

const VERSION_TIMEOUT_MS = 10_000;

type Environment = Readonly<Record<string, string | undefined>>;

const found = new Map<string, string>();

/** A path, or just `runsc` if there is none. Looks once for each environment. */
export function findRunsc(environment: Environment = process.env): string {
  const named = environment['CAY_RUNSC'];
  if (named) return named;
  const candidates = runscCandidates(environment);
  if (candidates.length <= 1) return candidates[0] ?? 'runsc';
  const key = candidates.join('\n');
  const known = found.get(key) ?? newest(candidates);
  found.set(key, known);
  return known;
}

/**
 * Rejects `failed_precondition` for a program that the operator names and that cannot be run: without it
 * sandboxes would silently get a weaker isolation.
 */
export function requireNamedRunsc(named = process.env['CAY_RUNSC']): void {
  if (!named || (named.startsWith('/') && isExecutable(named))) return;
  throw new CayError('failed_precondition', `Cannot use "${named}" as runsc: it is no path of a program`, {
    hint: 'name a file that can be run with --runsc or CAY_RUNSC, or leave it out',
  });
}

/** Every `runsc` that is not named by the operator, each once. */
export function runscCandidates(environment: Environment): string[] {
  const inPath = (environment['PATH'] ?? '')
    .split(delimiter)
    .filter((dir) => dir.startsWith('/'))
    .map((dir) => join(dir, 'runsc'));
  const paths = [...inPath, ...builtRunscs(environment)].filter(isExecutable);
  const seen = new Set<string>();
  return paths.filter((path) => {
    const real = realpathSync(path);
    return seen.has(real) ? false : seen.add(real);
  });
}

/** What `scripts/build-runsc` has put into the cache. */
function builtRunscs(environment: Environment): string[] {
  const cache = environment['XDG_CACHE_HOME'] || join(environment['HOME'] || homedir(), '.cache');
  const dir = join(cache, 'cay', 'runsc');
  try {
    return readdirSync(dir)
      .filter((name) => /^runsc-\d{8}-[0-9a-f]{12}$/.test(name))
      .map((name) => join(dir, name));
  } catch {
    return [];
  }
}

function newest(candidates: string[]): string {
  const dated = candidates
    .map((path) => ({ path, date: runscDate(versionOf(path)) ?? 0 }))
    .filter(({ date }) => date >= OLDEST_RUNSC)
    // The order of PATH decides between equals.
    .toSorted((a, b) => b.date - a.date);
  return dated[0]?.path ?? candidates[0]!;
}

export function versionOf(path: string): string {
  const { status, stdout } = spawnSync(path, ['--version'], {
    encoding: 'utf8',
    timeout: VERSION_TIMEOUT_MS,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return status === 0 ? parseVersion('runsc', stdout) : '';
}

/** `runsc 20240729` is 20240729. */
export function runscDate(version: string): number | undefined {
  const date = /20\d{6}/.exec(version)?.[0];
  return date === undefined ? undefined : Number(date);
}
