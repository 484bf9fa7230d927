import { ABILITIES, SandboxSpecSchema, type Ability } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { checkSpec } from './check-spec.ts';

const all = Object.fromEntries(ABILITIES.map((ability) => [ability, true])) as Record<Ability, boolean>;
const mounts = {
  bucketMounts: { type: 'bucket', bucket: 'data', path: '/mnt/data' },
  tmpfs: { type: 'tmpfs', path: '/mnt/memory' },
  hostPaths: { type: 'host', source: '/srv', path: '/mnt/host' },
} as const;

describe('a spec with a mount that the backend has none of', () => {
  it.each(Object.keys(mounts) as (keyof typeof mounts)[])('is refused with the reason: %s', (ability) => {
    const spec = SandboxSpecSchema.parse({ template: 'base', mounts: [mounts[ability]] });
    const known = { runtimes: [], notes: { [ability]: 'it has none: use copies' } };
    expect(() => checkSpec(spec, 'Docker', { ...known, abilities: { ...all, [ability]: false } })).toThrow(
      expect.objectContaining({
        code: 'unsupported',
        message: expect.stringContaining('it has none: use copies'),
      }),
    );
    expect(() => checkSpec(spec, 'Docker', { ...known, abilities: all })).not.toThrow();
  });
});
