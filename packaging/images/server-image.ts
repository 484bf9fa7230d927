/**
 * The image of the server: Node.js with the libraries that it is linked to, our sources, and the packages
 * that they use. Nothing else, no shell.
 */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { ACCOUNTS } from './guest-image.ts';
import { layerOf, writeImage, type LayerFile, type LayerLink } from './image.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const HOME = 'opt/cay';
const MAIN = `/${HOME}/server/src/main.ts`;
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

type Item = LayerFile | LayerLink | { path: string; mode: number; source: string };

export async function writeServerImage(
  file: string,
  options: { name: string; compress?: boolean },
): Promise<string> {
  const items = [...(await programFiles()), ...(await ourFiles()), ...(await packageFiles())];
  // Always in the same order, so that the same files are the same image.
  items.sort((one, other) => (one.path < other.path ? -1 : 1));
  return writeImage(file, {
    ...options,
    layer: layerOf(items),
    entrypoint: ['/usr/bin/cay'],
    cmd: ['up'],
    env: ['PATH=/usr/bin', 'HOME=/tmp', 'CAY_DATA=/data', `SSL_CERT_FILE=${CERTIFICATES}`],
    user: '1000:1000',
    workdir: '/',
  });
}

async function programFiles(): Promise<Item[]> {
  const node = realpathSync(process.execPath);
  const { stdout } = await run('ldd', [node]);
  const libraries = [...stdout.matchAll(/(\/\S+)(?= \()/g)].map(([, path]) => path!);
  return [
    { path: 'usr/bin/node', mode: 0o755, source: node },
    // Run by Node itself, because there is no shell.
    { path: 'usr/bin/cay', mode: 0o755, content: Buffer.from(`#!/usr/bin/node\nimport('${MAIN}');\n`) },
    ...libraries.map((path) => ({ path: path.slice(1), mode: 0o755, source: realpathSync(path) })),
    ...(existsSync(CERTIFICATES) ? [{ path: CERTIFICATES.slice(1), mode: 0o644, source: CERTIFICATES }] : []),
    ...ACCOUNTS,
  ];
}

async function ourFiles(): Promise<Item[]> {
  const isNeeded = (path: string) => !/\.test\.ts$|\/testing\//.test(path);
  const directories = await Promise.all(
    ['server/src', 'sdk/src'].map((directory) => below(join(ROOT, directory))),
  );
  const files = [
    ...directories.flat().filter(isNeeded),
    ...['package.json', 'server/package.json', 'sdk/package.json', 'LICENSE'].map(inRoot),
  ];
  return [
    ...files.map((source) => ({ path: join(HOME, relative(ROOT, source)), mode: 0o644, source })),
    { path: `${HOME}/node_modules/@cay/sdk`, target: '../../sdk' },
  ];
}

interface Manifest {
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

/** The packages that the server uses, and those that these use. */
async function packageFiles(): Promise<Item[]> {
  const found = new Set<string>();
  const visit = (directory: string) => {
    const { dependencies, optionalDependencies } = JSON.parse(
      readFileSync(join(directory, 'package.json'), 'utf8'),
    ) as Manifest;
    for (const name of Object.keys({ ...dependencies, ...optionalDependencies })) {
      const at = findPackage(directory, name);
      if (at === undefined || found.has(at)) continue;
      found.add(at);
      visit(at);
    }
  };
  visit(join(ROOT, 'server'));
  visit(join(ROOT, 'sdk'));
  const all = await Promise.all([...found].map((directory) => below(directory, 'node_modules')));
  return all
    .flat()
    .filter(isRun)
    .map((source) => ({ path: join(HOME, relative(ROOT, source)), mode: 0o644, source }));
}

/** Types, sources that were compiled, and texts for people are not run. */
const isRun = (path: string) =>
  !/\.(d\.[cm]?ts|map|md|markdown)$|\/(test|tests|docs|examples?|\.github)\//i.test(path);

/** As Node looks for it: beside, then further up. Our own packages, and Node, are put there otherwise. */
function findPackage(from: string, name: string): string | undefined {
  if (name.startsWith('@cay/') || name.startsWith('node-linux-')) return undefined;
  for (let directory = from; directory.startsWith(ROOT); directory = join(directory, '..')) {
    const candidate = join(directory, 'node_modules', name);
    if (existsSync(join(candidate, 'package.json'))) return candidate;
    if (directory === ROOT) break;
  }
  return undefined;
}

async function below(directory: string, except?: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const parts = entries.map(async (entry) => {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) return entry.name === except ? [] : below(path, except);
    return entry.isFile() ? [path] : [];
  });
  return (await Promise.all(parts)).flat();
}

const inRoot = (path: string) => join(ROOT, path);
