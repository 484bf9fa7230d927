import { loadAllYaml, loadYaml } from '@kubernetes/client-node';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { files } from '../../packaging/kubernetes/files.ts';
import { ROOT } from '../support/markdown.ts';

const read = (path: string) => readFile(join(ROOT, 'packaging/kubernetes', path), 'utf8');

describe('packaging/kubernetes', () => {
  it.each(Object.entries(files()))('%s is current; "node packaging/kubernetes/generate.ts" makes it so', async (path, text) => {
    expect(await read(path)).toBe(text);
  });

  it('has a chart that says with its own values what the manifests say', async () => {
    const values = loadYaml<Record<string, string>>(await read('chart/values.yaml'));
    const template = await read('chart/templates/cay.yaml');
    // The chart has no other construct, so that this is all that Helm would do to it.
    const text = template.replaceAll(/\{\{ \.(?:Values\.(\w+)|Release\.Namespace) \}\}/g, (_, name: string | undefined) =>
      name === undefined ? 'cay' : values[name]!,
    );
    expect(text).not.toContain('{{');
    const kept = (object: { metadata: { annotations?: object } }) => {
      const { annotations: _, ...metadata } = object.metadata;
      return { ...object, metadata };
    };
    const [, ...manifests] = loadAllYaml(await read('manifests/cay.yaml'));
    expect(loadAllYaml(text).map((object) => kept(object as never))).toEqual(manifests);
  });
});
