import { newId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { volumeClaimName } from '../client/names.ts';
import type { KubernetesObject } from '../client/objects.ts';
import { quantityBytes, renderVolumeClaim, volumeOf } from './claim.ts';

describe('quantityBytes', () => {
  it.each([
    ['33554432', 33_554_432],
    ['32Mi', 32 * 1024 ** 2],
    ['1k', 1000],
    ['2Ki', 2048],
    ['1.5Gi', 1.5 * 1024 ** 3],
    ['10G', 10e9],
    ['1Ei', 1024 ** 6],
    ['1e9', 1e9],
    ['much', null],
    ['-1', null],
    [undefined, null],
  ])('reads %s', (amount, bytes) => expect(quantityBytes(amount)).toBe(bytes));
});

describe('renderVolumeClaim', () => {
  const id = newId('vol');
  const render = (more: object = {}) =>
    renderVolumeClaim(id, {
      namespace: 'here',
      installation: 'ours',
      project: undefined,
      sizeBytes: null,
      volumes: undefined,
      ...more,
    }) as KubernetesObject & { spec: object };

  it('asks for what the operator says where the volume says nothing', () => {
    expect(render().spec).toEqual({
      accessModes: ['ReadWriteOnce'],
      resources: { requests: { storage: String(10 * 1024 ** 3) } },
    });
    const volumes = { storageClass: 'fast', sizeBytes: 4096, access: 'ReadWriteMany' };
    expect(render({ volumes }).spec).toEqual({
      accessModes: ['ReadWriteMany'],
      storageClassName: 'fast',
      resources: { requests: { storage: '4096' } },
    });
    expect(render({ volumes, sizeBytes: 5000 }).spec).toMatchObject({
      resources: { requests: { storage: '5000' } },
    });
  });

  it('has no label by which sweeps take what has no owner', () => {
    expect(render({ project: 'prj_x' }).metadata.labels).toEqual({
      'cay.dev/installation': 'ours',
      'cay.dev/volume': id,
      'cay.dev/making': 'true',
      'cay.dev/project': 'prj_x',
    });
  });

  it('is known by its label and its name together', () => {
    expect(volumeOf(render())).toBe(id);
    const { metadata } = render();
    expect(volumeOf({ metadata: { ...metadata, name: volumeClaimName(newId('vol')) } })).toBeUndefined();
    expect(volumeOf({ metadata: { ...metadata, labels: {} } })).toBeUndefined();
  });
});
