/**
 * Builds the SDK as a package that can be installed: `sdk/dist` has JavaScript, types and a manifest of its
 * own, and `npm pack ./sdk/dist` makes the file of it. The workspace runs from the sources.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');
const SDK = join(ROOT, 'sdk');
const DIST = join(SDK, 'dist');

interface Manifest {
  exports: Record<string, string>;
  [field: string]: unknown;
}

/** The manifest of the package: every entry point as its JavaScript and its types. */
export function packageManifest(source: Manifest): object {
  const exports = Object.fromEntries(
    Object.entries(source.exports).map(([name, path]) => {
      const file = path.replace('./src/', './').replace(/\.ts$/, '');
      return [name, { types: `${file}.d.ts`, default: `${file}.js` }];
    }),
  );
  return { ...source, exports: { ...exports, './package.json': './package.json' }, sideEffects: false };
}

const DISPOSABLE = '/// <reference lib="esnext.disposable" />\n';

/**
 * The compiler leaves the endings of imports in declarations as they are in the sources. Programs whose `lib`
 * is older than `AsyncDisposable` get it by reference.
 */
function mendDeclarations(): void {
  for (const name of readdirSync(DIST, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.d.ts')) continue;
    const file = join(DIST, name);
    const text = readFileSync(file, 'utf8').replaceAll(
      /((?:from|import\()\s*['"]\.{1,2}\/[^'"]+)\.ts(['"])/g,
      '$1.js$2',
    );
    writeFileSync(file, /Dispos/.test(text) ? `${DISPOSABLE}${text}` : text);
  }
}

export function buildSdk(): string {
  rmSync(DIST, { recursive: true, force: true });
  execFileSync(join(ROOT, 'node_modules/.bin/tsc'), ['-p', 'tsconfig.build.json'], {
    cwd: SDK,
    stdio: 'inherit',
  });
  mendDeclarations();
  const manifest = JSON.parse(readFileSync(join(SDK, 'package.json'), 'utf8')) as Manifest;
  writeFileSync(join(DIST, 'package.json'), `${JSON.stringify(packageManifest(manifest), undefined, 2)}\n`);
  copyFileSync(join(ROOT, 'LICENSE'), join(DIST, 'LICENSE'));
  copyFileSync(join(ROOT, 'docs/guide/sdk.md'), join(DIST, 'README.md'));
  return DIST;
}

if (import.meta.main) process.stdout.write(`Built ${buildSdk()}; "npm pack ./sdk/dist" packs it\n`);
