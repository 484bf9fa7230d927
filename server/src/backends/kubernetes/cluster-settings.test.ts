import { describe, expect, it } from 'vitest';
import { clusterOf } from '../../settings/cluster-of.ts';
import { settingsIn } from '../../settings/resolve-settings.ts';
import { kubernetesSettings } from './cluster-settings.ts';

const read = (env: Record<string, string>) =>
  kubernetesSettings(clusterOf(settingsIn({ CAY_KUBERNETES_GUEST_IMAGE: 'guest:1', ...env })), {
    installation: 'here',
  });

describe('kubernetesSettings', () => {
  it('bounds volumes by their number and their usual size, with those of the files of sandboxes', () => {
    expect(read({}).tenancy).toMatchObject({ claims: 100, storage: String(1000 * 1024 ** 3) });
    const own = {
      CAY_KUBERNETES_QUOTA_VOLUMES: '3',
      CAY_KUBERNETES_VOLUME_SIZE: '2Gi',
      CAY_KUBERNETES_VOLUME_CLASS: 'fast',
      CAY_KUBERNETES_QUOTA_PODS: '4',
      CAY_KUBERNETES_STORAGE: '1Gi',
    };
    expect(read(own)).toMatchObject({
      volumes: { storageClass: 'fast', sizeBytes: 2 * 1024 ** 3, access: 'ReadWriteOnce' },
      tenancy: { claims: 7, storage: String(10 * 1024 ** 3) },
    });
    expect(read({ ...own, CAY_KUBERNETES_QUOTA_STORAGE: '1Ti' }).tenancy).toMatchObject({ storage: '1Ti' });
    expect(read(own).volumes).not.toHaveProperty('enforced');
    expect(read({ CAY_KUBERNETES_VOLUME_SIZE_ENFORCED: '1' }).volumes).toMatchObject({ enforced: true });
  });

  it('keeps a namespace of its own unless told not to', () => {
    expect(read({})).toMatchObject({
      namespace: 'cay-sandboxes',
      installation: 'here',
      tenancy: { pods: 100 },
    });
    const bounds = {
      CAY_KUBERNETES_QUOTA_PODS: '5',
      CAY_KUBERNETES_QUOTA_CPU: '16',
      CAY_KUBERNETES_MAX_MEMORY: '64Gi',
    };
    expect(read({ CAY_KUBERNETES_NAMESPACE: 'x', ...bounds })).toMatchObject({
      namespace: 'x',
      tenancy: { pods: 5, cpu: '16', maxMemory: '64Gi' },
    });
    const unmanaged = read({ CAY_KUBERNETES_TENANCY: 'unmanaged', ...bounds });
    expect(unmanaged.namespace).toBeUndefined();
    expect(unmanaged.tenancy).toBeUndefined();
  });

  it.each([
    ['TENANCY', 'mine'],
    ['QUOTA_PODS', 'many'],
    ['QUOTA_CPU', 'two'],
    ['MAX_MEMORY', '64 Gi'],
    ['REQUIRE_NETWORK_POLICY', 'maybe'],
    ['DISK', '500m'],
    ['DISK', '1Mi'],
    ['QUOTA_DISK', 'all'],
    ['MAX_DISK', '-1Gi'],
    ['PULL_POLICY', 'Sometimes'],
    ['REACH', 'somehow'],
    ['DIRECT_PORT', '80'],
    ['DIRECT_PORT', '70000'],
  ])('refuses CAY_KUBERNETES_%s=%s by name', (name, value) => {
    expect(() => read({ [`CAY_KUBERNETES_${name}`]: value })).toThrow(
      `CAY_KUBERNETES_${name} cannot be "${value}"`,
    );
  });

  it('reads templates by name, each an image', () => {
    expect(read({}).templates).toEqual({});
    const two = 'python=python:3.13-slim, node=registry.example:5000/node:24';
    expect(read({ CAY_KUBERNETES_TEMPLATES: two }).templates).toEqual({
      python: 'python:3.13-slim',
      node: 'registry.example:5000/node:24',
    });
    for (const wrong of ['python', 'base=debian:12', 'Upper=a:1', 'a=b=c'])
      expect(() => read({ CAY_KUBERNETES_TEMPLATES: wrong })).toThrow('CAY_KUBERNETES_TEMPLATES cannot be');
  });

  it('reaches guests by exec, or directly with a rule for the pods of the server', () => {
    expect(read({})).toMatchObject({ reach: 'exec', directPort: 7071 });
    expect(read({}).tenancy?.direct).toBeUndefined();
    const direct = { CAY_KUBERNETES_REACH: 'direct', CAY_KUBERNETES_DIRECT_PORT: '9000' };
    expect(() => read(direct)).toThrow('CAY_KUBERNETES_SERVER_NAMESPACE does not say');
    const labels = { 'app.kubernetes.io/name': 'cay', 'app.kubernetes.io/component': 'server' };
    const named = { ...direct, CAY_KUBERNETES_SERVER_NAMESPACE: 'cay' };
    expect(read(named)).toMatchObject({
      reach: 'direct',
      directPort: 9000,
      tenancy: { direct: { port: 9000, namespace: 'cay', labels } },
    });
    expect(read({ ...named, CAY_KUBERNETES_SERVER_LABELS: 'app=x,tier=y' }).tenancy?.direct?.labels).toEqual({
      app: 'x',
      tier: 'y',
    });
    expect(() => read({ ...named, CAY_KUBERNETES_SERVER_LABELS: 'app' })).toThrow(
      'CAY_KUBERNETES_SERVER_LABELS cannot be "app"',
    );
    expect(read({ ...direct, CAY_KUBERNETES_TENANCY: 'unmanaged' })).toMatchObject({ reach: 'direct' });
  });

  it('has a usual disk limit that is never more than the most', () => {
    const GiB = 1024 ** 3;
    expect(read({})).not.toHaveProperty('diskBytes');
    expect(read({ CAY_KUBERNETES_DISK: '5Gi' })).toMatchObject({
      diskBytes: 5 * GiB,
      tenancy: { diskBytes: 5 * GiB },
    });
    expect(read({ CAY_KUBERNETES_MAX_DISK: '2Gi' })).toMatchObject({
      diskBytes: 2 * GiB,
      tenancy: { maxDisk: '2Gi' },
    });
    expect(read({ CAY_KUBERNETES_DISK: '1Gi', CAY_KUBERNETES_MAX_DISK: '2Gi' })).toMatchObject({
      diskBytes: GiB,
    });
    expect(read({ CAY_KUBERNETES_QUOTA_DISK: '1Ti' }).tenancy).toMatchObject({ disk: '1Ti' });
  });

  it('says that the image of the guest is missing', () => {
    expect(() => kubernetesSettings(clusterOf(settingsIn({})), { installation: 'here' })).toThrow(
      'CAY_KUBERNETES_GUEST_IMAGE',
    );
  });
});
