import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FAMILIES, LAYERS, productSources, violations } from '../../scripts/layers.ts';
import { ROOT } from '../support/markdown.ts';

const plant = (file: string, ...specifiers: string[]) =>
  violations(new Map([[file, specifiers.map((name) => `import { x } from '${name}';`).join('\n')]]));

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
