import { SandboxSpecSchema, newId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { podSpec } from './pod-spec.ts';

interface Container {
  command: string[];
  resources: { limits: Record<string, string>; requests: Record<string, string> };
  securityContext: Record<string, unknown>;
  volumeMounts: { mountPath: string; readOnly?: boolean }[];
}

function pod(spec: SandboxSpecInput = {}, runtime = { name: 'default', gvisor: false }) {
  const settings = { guestImage: 'guest:1', baseImage: 'base:1' };
  const options = { settings, runtime, pullPolicy: 'IfNotPresent', requests: { cpus: 0.05, memoryBytes: 64 * 1024 * 1024 } };
  return podSpec(newId('sbx'), SandboxSpecSchema.parse(spec), options) as Record<string, unknown> & {
    initContainers: Container[];
    containers: Container[];
  };
}

const GVISOR = { name: 'gvisor', gvisor: true };

const writable = (spec?: SandboxSpecInput) =>
  pod(spec)
    .containers[0]!.volumeMounts.filter(({ readOnly }) => !readOnly)
    .map(({ mountPath }) => mountPath);

describe('podSpec', () => {
  it('asks for no right that Pod Security "restricted" withholds, in any container', () => {
    const { containers, initContainers, ...rest } = pod();
    expect(rest).toMatchObject({
      automountServiceAccountToken: false,
      securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
    });
    for (const { securityContext } of [...containers, ...initContainers]) {
      expect(securityContext).toEqual({
        allowPrivilegeEscalation: false,
        privileged: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
  });

  it('names a RuntimeClass only where one was chosen', () => {
    expect(pod()).not.toHaveProperty('runtimeClassName');
    expect(pod({}, GVISOR)).toMatchObject({ runtimeClassName: 'gvisor' });
  });

  it('lets be written what programs expect, and the working directory', () => {
    expect(writable()).toEqual(['/.cay-run', '/home/user', '/tmp', '/run', '/var/tmp']);
    expect(writable({ workdir: '/srv/app' })).toContain('/srv/app');
    expect(writable({ workdir: '/home/user/deep' })).not.toContain('/home/user/deep');
    expect(writable({ readOnlyRoot: true })).toEqual(['/.cay-run', '/tmp', '/run']);
  });

  it('sets aside no more than it allows', () => {
    const { limits, requests } = pod({ limits: { cpus: 0.05, memoryBytes: 16 * 1024 * 1024 } }).containers[0]!.resources;
    expect(limits).toEqual({ cpu: '50m', memory: '16777216' });
    expect(requests).toEqual({ cpu: '50m', memory: '16777216' });
    expect(pod({ limits: { cpus: null, memoryBytes: null } }).containers[0]!.resources.limits).toEqual({});
  });

  it('leaves gVisor room above what the guest guards, and lets the first container have no more than the second', () => {
    const { initContainers, containers } = pod({ limits: { cpus: 0.5, memoryBytes: 128 * 1024 * 1024 } }, GVISOR);
    expect(containers[0]!.resources.limits).toEqual({ cpu: '500m', memory: String(320 * 1024 * 1024) });
    expect(initContainers[0]!.resources).toEqual(containers[0]!.resources);
  });
});
