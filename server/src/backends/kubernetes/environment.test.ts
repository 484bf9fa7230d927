import { describe, expect, it } from 'vitest';
import { kubernetesSettings } from './environment.ts';

const read = (env: Record<string, string>) => kubernetesSettings({ CAY_KUBERNETES_GUEST_IMAGE: 'guest:1', ...env }, 'here');

describe('kubernetesSettings', () => {
  it('keeps a namespace of its own unless told not to', () => {
    expect(read({})).toMatchObject({ namespace: 'cay-sandboxes', installation: 'here', tenancy: { pods: 100 } });
    const bounds = { CAY_KUBERNETES_QUOTA_PODS: '5', CAY_KUBERNETES_QUOTA_CPU: '16', CAY_KUBERNETES_MAX_MEMORY: '64Gi' };
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
    ['PULL_POLICY', 'Sometimes'],
  ])('refuses CAY_KUBERNETES_%s=%s by name', (name, value) => {
    expect(() => read({ [`CAY_KUBERNETES_${name}`]: value })).toThrow(`"CAY_KUBERNETES_${name}" is "${value}"`);
  });

  it('says that the image of the guest is missing', () => {
    expect(() => kubernetesSettings({}, 'here')).toThrow('CAY_KUBERNETES_GUEST_IMAGE');
  });
});
