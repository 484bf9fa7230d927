import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { files } from '../../packaging/kubernetes/files.ts';
import { DEFAULTS, forgottenSettings, serverEnv } from '../../packaging/kubernetes/values.ts';
import { settingsIn } from '../../server/src/settings/resolve-settings.ts';
import { unknownVariables } from '../../server/src/settings/unknown-variables.ts';
import { neededRights } from '../../server/src/backends/kubernetes/tenancy/declarations.ts';
import { RIGHTS } from '../../server/src/backends/kubernetes/job/needs.ts';
import { fromYaml } from '../../server/src/backends/kubernetes/client/yaml.ts';
import { ROOT } from '../support/markdown.ts';

const read = (path: string) => readFile(join(ROOT, 'packaging/kubernetes', path), 'utf8');

describe('packaging/kubernetes', () => {
  it.each(Object.entries(files()))(
    '%s is current; "node packaging/kubernetes/generate.ts" makes it so',
    async (path, text) => {
      expect(await read(path)).toBe(text);
    },
  );

  it('has every setting of the server as a value, or a reason why not', () => {
    expect(forgottenSettings()).toEqual([]);
  });

  it('gives the server an environment that it understands', () => {
    const env = serverEnv(DEFAULTS);
    expect(unknownVariables(env)).toEqual([]);
    expect(settingsIn(env)).toMatchObject({
      backend: ['kubernetes-job'],
      kubernetesNamespace: 'cay-sandboxes',
    });
  });

  it('has a guide with every right that the server needs, and what for', async () => {
    const guide = await readFile(join(ROOT, 'docs/guide/kubernetes.md'), 'utf8');
    for (const { group, resource, subresource, verbs, clusterWide, optional, why } of neededRights(RIGHTS, {
      tenancy: { pods: 1, perProject: true },
    })) {
      const named = `\`${resource}${subresource ? `/${subresource}` : ''}${group ? `.${group}` : ''}\`${clusterWide ? ', in the whole cluster' : ''}`;
      expect(guide).toContain(
        `| ${named} | ${verbs.join(', ')} | ${why}${optional ? ' (it can do without)' : ''} |`,
      );
    }
  });

  it('has a chart that says with its own values what the manifests say', async () => {
    const [values] = fromYaml<Record<string, string>>(await read('chart/values.yaml'));
    const template = await read('chart/templates/cay.yaml');
    // The chart has no other construct, so that this is all that Helm would do to it.
    const chosen = template.replaceAll(
      /\{\{- if [^\n]*\n[^]*?\{\{- else \}\}\n([^]*?)\{\{- end \}\}\n/g,
      '$1',
    );
    const text = chosen.replaceAll(
      /\{\{ \.(?:Values\.(\w+)|Release\.Namespace) \}\}/g,
      (_, name: string | undefined) => (name === undefined ? 'cay' : values![name]!),
    );
    expect(text).not.toContain('{{');
    const kept = (object: { metadata: { annotations?: object } }) => {
      const { annotations: _, ...metadata } = object.metadata;
      return { ...object, metadata };
    };
    const [, ...manifests] = fromYaml(await read('manifests/cay.yaml'));
    expect(fromYaml<{ metadata: object }>(text).map(kept)).toEqual(manifests);
  });
});
