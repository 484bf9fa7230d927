/**
 * Prepares a release: `npm run release -- 0.2.0`. Stamps the version into the packages, the guest and
 * the chart, and turns the changelog's Unreleased section into one of that version. Changes files and nothing
 * else; look at the diff, commit and tag it.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const SEMVER = /^\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?$/;

/** The changelog with its Unreleased section under the version's own heading. */
export function stampChangelog(text: string, version: string, date: string): string {
  const heading = '## [Unreleased]';
  const at = text.indexOf(heading);
  if (at < 0) throw new Error(`CHANGELOG.md has no section "${heading}"`);
  const next = text.indexOf('\n## ', at + heading.length);
  const body = text.slice(at + heading.length, next < 0 ? undefined : next).trim();
  if (body === '') throw new Error('The Unreleased section of CHANGELOG.md is empty: nothing to release');
  if (text.includes(`## [${version}]`)) throw new Error(`CHANGELOG.md already has a section for ${version}`);
  return `${text.slice(0, at)}${heading}\n\n## [${version}] - ${date}\n\n${body}\n${next < 0 ? '' : text.slice(next)}`;
}

/** A manifest with another version: the first `version` field of a JSON, TOML or YAML file. */
export function stampVersion(text: string, version: string): string {
  const stamped = text.replace(/^(\s*"?version"?\s*[:=]\s*"?)[^"\n,]+/m, `$1${version}`);
  if (stamped === text && !text.includes(version)) throw new Error('The file has no version field');
  return stamped;
}

/** Edits the files of a checkout. Rejects before anything is changed if one of them cannot be stamped. */
export function stampFiles(root: string, version: string, date: string): void {
  if (!SEMVER.test(version)) throw new Error(`"${version}" is not a version: give one such as 0.2.0`);
  const read = (path: string) => readFileSync(join(root, path), 'utf8');
  const stamped = new Map([
    ['CHANGELOG.md', stampChangelog(read('CHANGELOG.md'), version, date)],
    ['sdk/package.json', stampVersion(read('sdk/package.json'), version)],
    [
      'server/package.json',
      stampVersion(read('server/package.json'), version).replace(/("@cay\/sdk": ")[^"]+/, `$1${version}`),
    ],
    ['guest/Cargo.toml', stampVersion(read('guest/Cargo.toml'), version)],
  ]);
  for (const [path, text] of stamped) writeFileSync(join(root, path), text);
}

function release(version: string): void {
  stampFiles(ROOT, version, new Date().toISOString().slice(0, 10));
  const run = (program: string, args: string[], cwd = ROOT) =>
    execFileSync(program, args, { cwd, stdio: 'inherit' });
  run('npm', ['install', '--package-lock-only', '--ignore-scripts', '--loglevel=error']);
  run('cargo', ['update', '--workspace', '--offline'], join(ROOT, 'guest'));
  run(process.execPath, ['packaging/kubernetes/generate.ts']);
  process.stdout.write(
    `Stamped ${version}. Next: npm test, commit, git tag v${version}, npm pack -w sdk -w server\n`,
  );
}

if (import.meta.main) {
  try {
    release(process.argv[2] ?? '');
  } catch (error) {
    process.stderr.write(`error: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 2;
  }
}
