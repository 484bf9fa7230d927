import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { FAMILIES, LAYERS, productSources, violations } from '../../scripts/layers.ts';
import { ROOT } from '../support/markdown.ts';

const plant = (file: string, ...specifiers: string[]) =>
  violations(new Map([[file, specifiers.map((name) => `import { x } from '${name}';`).join('\n')]]));

/**
 * What each layer must never import, written here a second time: a rule that is lifted has to be lifted
 * twice.
 */
const NEVER: Readonly<Record<string, readonly string[]>> = {
  lib: ['policy', 'guest', 'control', 'api'],
  policy: ['control', 'backends', 'records'],
  s3: ['storage', 'control', 'egress'],
  'bucket-mounts': ['guest', 'host', 'backends', 'control', 'records', 'api'],
  storage: ['control', 'records', 'backends'],
  egress: ['guest', 'control', 'backends', 'records', 'api'],
  guest: ['host', 'backends', 'control'],
  enforcement: ['control', 'backends', 'api'],
  host: ['backends', 'control', 'records'],
  records: ['control', 'backends', 'api'],
  backends: ['control', 'records', 'api', 'storage'],
  control: ['api', 'host', 'cli', 'settings'],
  api: ['backends', 'records', 'host', 'egress', 'storage', 's3', 'enforcement', 'cli'],
  settings: ['control', 'backends', 'host', 'api'],
  cli: ['storage', 's3', 'enforcement'],
};

/** All folders of the server, with those inside them. */
const foldersOf = (layer: string): string[] =>
  readdirSync(join(ROOT, 'server/src', layer), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
    .concat(`server/src/${layer}`);

const pathTo = (layer: string, from: string) => relative(from, `server/src/${layer}/b.ts`);

describe('the layers', () => {
  it('are kept by the product', () => {
    expect(violations(productSources())).toEqual([]);
  });

  it('have a rule for every folder', () => {
    const folders = readdirSync(join(ROOT, 'server/src'), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
    expect(folders.filter((name) => LAYERS[name] === undefined)).toEqual([]);
    expect(plant('server/src/novelties/thing.ts')).toEqual([
      'server/src/novelties/thing.ts: the folder "novelties" has no rule in scripts/layers.ts',
    ]);
  });

  it.each(Object.entries(LAYERS).filter(([layer]) => layer !== '.'))(
    '%s imports only what it may',
    (layer, allowed) => {
      for (const other of Object.keys(LAYERS).filter((name) => name !== '.' && name !== layer)) {
        const found = plant(`server/src/${layer}/a.ts`, `../${other}/b.ts`);
        expect(found, `${layer} imports ${other}`).toHaveLength(allowed.includes(other) ? 0 : 1);
      }
    },
  );

  it('are those that this test knows', () => {
    expect(Object.keys(NEVER).sort()).toEqual(
      Object.keys(LAYERS)
        .filter((layer) => layer !== '.')
        .sort(),
    );
  });

  it.each(Object.entries(NEVER))('no folder of %s imports what it must not', (layer, never) => {
    for (const folder of foldersOf(layer))
      for (const other of never)
        expect(plant(`${folder}/a.ts`, pathTo(other, folder)), `${folder} imports ${other}`).toHaveLength(1);
  });

  it('fail the check for a violation planted in each', () => {
    const root = mkdtempSync(join(tmpdir(), 'cay-layers-'));
    onTestFinished(() => rmSync(root, { recursive: true, force: true }));
    const planted = Object.entries(NEVER).map(([layer, [other]]) => {
      const file = `server/src/${layer}/deep/er/a.ts`;
      mkdirSync(join(root, dirname(file)), { recursive: true });
      writeFileSync(join(root, file), `import { b } from '${pathTo(other!, dirname(file))}';\n`);
      return file;
    });
    execFileSync('git', ['init', '-q'], { cwd: root });
    const check = spawnSync(process.execPath, [join(ROOT, 'scripts/layers.ts')], {
      cwd: root,
      encoding: 'utf8',
    });
    expect(check.status).toBe(1);
    for (const file of planted) expect(check.stderr).toContain(`${file} imports`);
  });

  it.each(FAMILIES)(
    'drivers of $folder are there under these names',
    ({ folder, files = [], shared = [] }) => {
      for (const name of [...files.map((file) => `${file}.ts`), ...shared])
        expect(existsSync(join(ROOT, 'server/src', folder, name)), name).toBe(true);
    },
  );

  it.each(FAMILIES)('drivers of $folder never import one another', ({ folder, files }) => {
    const start = `server/src/${folder}`;
    const found = files
      ? plant(`${start}/${files[0]}.ts`, `./${files[1]}.ts`)
      : plant(`${start}/one/a.ts`, '../other/b.ts');
    expect(found).toHaveLength(1);
    expect(plant(`${start}/${files?.[0] ?? 'one/a'}.ts`, files ? './contract.ts' : '../contract.ts')).toEqual(
      [],
    );
  });

  it('the control plane sees backends through the contract alone', () => {
    expect(plant('server/src/control/a.ts', '../backends/local/local.ts')).toHaveLength(1);
    expect(plant('server/src/control/a.ts', '../backends/backend.ts')).toEqual([]);
  });

  it('the protocol imports nothing of ours', () => {
    expect(plant('sdk/src/protocol/spec.ts', '../client.ts')).toHaveLength(1);
    expect(plant('sdk/src/client.ts', '../../server/src/main.ts')).toHaveLength(1);
    expect(plant('server/src/lib/a.ts', '@cay/sdk/protocol')).toHaveLength(1);
  });
});
