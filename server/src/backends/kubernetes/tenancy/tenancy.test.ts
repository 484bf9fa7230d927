import { describe, expect, it } from 'vitest';
import { tenancyObjects, type TenancySettings } from './tenancy.ts';

const GiB = 1024 ** 3;

function bounds(tenancy: TenancySettings) {
  const objects = tenancyObjects({ namespace: 'here', installation: 'ours', tenancy });
  const specOf = (kind: string) =>
    objects.find((object) => object.kind === kind)?.['spec'] as Record<string, never>;
  const { limits } = specOf('LimitRange') as unknown as {
    limits: { default: object; max?: object; defaultRequest: object }[];
  };
  return { quota: specOf('ResourceQuota')['hard'] as unknown as Record<string, string>, range: limits[0]! };
}

describe('tenancyObjects', () => {
  it('bounds what pods write, all together and each, without being asked to', () => {
    const { quota, range } = bounds({ pods: 7 });
    expect(quota).toMatchObject({ pods: '7', 'limits.ephemeral-storage': String(70 * GiB) });
    expect(range.default).toEqual({ 'ephemeral-storage': String(10 * GiB) });
    expect(range.defaultRequest).toMatchObject({ 'ephemeral-storage': '64Mi' });
    expect(range).not.toHaveProperty('max');
  });

  it('bounds volume claims where it is told to', () => {
    expect(bounds({ pods: 7 }).quota).not.toHaveProperty('persistentvolumeclaims');
    expect(bounds({ pods: 7, claims: 3, storage: '1Ti' }).quota).toMatchObject({
      persistentvolumeclaims: '3',
      'requests.storage': '1Ti',
    });
  });

  it('takes the bounds of the settings', () => {
    const { quota, range } = bounds({
      pods: 7,
      disk: '1Ti',
      maxDisk: '20Gi',
      diskBytes: 2 * GiB,
      cpu: '16',
      maxCpu: '4',
    });
    expect(quota).toMatchObject({ 'limits.ephemeral-storage': '1Ti', 'limits.cpu': '16' });
    expect(range.default).toEqual({ cpu: '4', 'ephemeral-storage': String(2 * GiB) });
    expect(range.max).toEqual({ cpu: '4', 'ephemeral-storage': '20Gi' });
    expect(bounds({ pods: 3, diskBytes: GiB }).quota).toMatchObject({
      'limits.ephemeral-storage': String(3 * GiB),
    });
  });
});
