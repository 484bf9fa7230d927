/**
 * Installs the frameworks that the packages here are tested with, once for each lock file, outside the
 * checkout, and links them as `integrations/node_modules`. The root's own install stays quick this way.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const HERE = import.meta.dirname;
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'cay-tests');

function install(): string {
  const lock = readFileSync(join(HERE, 'package-lock.json'));
  const directory = join(
    CACHE,
    `integrations-${createHash('sha256').update(lock).digest('hex').slice(0, 16)}`,
  );
  const complete = join(directory, 'complete');
  if (!existsSync(complete)) {
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true });
    for (const name of ['package.json', 'package-lock.json', '.npmrc'])
      copyFileSync(join(HERE, name), join(directory, name));
    // Optional packages are whole programs for several platforms, which no test runs.
    execFileSync('npm', ['ci', '--ignore-scripts', '--omit=optional'], { cwd: directory, stdio: 'inherit' });
    writeFileSync(complete, '');
  }
  return join(directory, 'node_modules');
}

const link = join(HERE, 'node_modules');
const target = install();
// Vitest remembers where it found packages, through the link that is replaced.
if (!existsSync(link) || readlinkSync(link) !== target)
  rmSync(join(HERE, '../node_modules/.vitest-cache'), { recursive: true, force: true });
rmSync(link, { recursive: true, force: true });
symlinkSync(target, link);
