import { describe, expect, it } from 'vitest';
import { settingsIn } from '../../../settings/resolve-settings.ts';
import { clusterOf } from '../../../settings/cluster-of.ts';
import { checkPoolAndStorage, poolAndStorage } from './settings.ts';

describe('poolAndStorage', () => {
  it('reads what the environment says, and nothing where it says nothing', () => {
    expect(poolAndStorage(clusterOf(settingsIn({})))).toEqual({});
    const env = {
      CAY_KUBERNETES_WARM_POOL: '3',
      CAY_KUBERNETES_STORAGE: '5Gi',
      CAY_KUBERNETES_STORAGE_CLASS: 'fast',
    };
    expect(poolAndStorage(clusterOf(settingsIn(env)))).toEqual({
      warmPool: 3,
      storage: { size: '5Gi', storageClass: 'fast' },
    });
  });
});

describe('checkPoolAndStorage', () => {
  it('refuses what no cluster could be asked for', () => {
    expect(checkPoolAndStorage({})).toEqual({ warmPool: 0, storage: undefined });
    for (const warmPool of [-1, 0.5, Number.NaN, 1001])
      expect(() => checkPoolAndStorage({ warmPool })).toThrow(/warm pool/);
    for (const size of ['', 'much', '0Gi', '5 Gi'])
      expect(() => checkPoolAndStorage({ storage: { size } })).toThrow(/Storage/);
  });
});
