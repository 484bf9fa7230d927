import { describe, expect, it } from 'vitest';
import { tenancyObjects } from '../tenancy/tenancy.ts';
import { fromYaml, toYaml } from './yaml.ts';

describe('toYaml', () => {
  it('leaves nothing out of what a namespace of sandboxes has', () => {
    const objects = tenancyObjects({
      namespace: 'here',
      installation: 'ours',
      tenancy: { pods: 7, cpu: '4', maxDisk: '20Gi' },
    });
    const text = toYaml(objects);
    expect(text).toContain('default:\n');
    expect(text).not.toContain('_default');
    expect(fromYaml(text)).toEqual(objects);
  });
});
