import { SandboxSpecSchema, newId, type SandboxSpecInput } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { podSpec } from './pod-spec.ts';

interface Container {
  command: string[];
  resources: { limits: Record<string, string>; requests: Record<string, string> };
  securityContext: Record<string, unknown>;
  volumeMounts: { mountPath: string; readOnly?: boolean }[];
}

const MiB = 1024 * 1024;

function pod(
  spec: SandboxSpecInput = {},
  runtime = { name: 'default', gvisor: false },
  more: { diskBytes?: number } = {},
) {
  const settings = { guestImage: 'guest:1', baseImage: 'base:1', ...more };
  const options = {
    settings,
    runtime,
    pullPolicy: 'IfNotPresent',
    requests: { cpus: 0.05, memoryBytes: 64 * 1024 * 1024 },
  };
  return podSpec(newId('sbx'), SandboxSpecSchema.parse(spec), options) as Record<string, unknown> & {
    initContainers: Container[];
    containers: Container[];
    volumes: { name: string; emptyDir: { medium?: string; sizeLimit?: string } }[];
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
    const limited = { limits: { cpus: 0.05, memoryBytes: 16 * MiB, diskBytes: 16 * MiB } };
    const { limits, requests } = pod(limited).containers[0]!.resources;
    expect(limits).toEqual({ cpu: '50m', memory: '16777216', 'ephemeral-storage': '16777216' });
    expect(requests).toEqual(limits);
    const unlimited = pod({ limits: { cpus: null, memoryBytes: null } }).containers[0]!.resources.limits;
    expect(Object.keys(unlimited)).toEqual(['ephemeral-storage']);
  });

  it('bounds what is written in every container and every volume, also where the sandbox has no limit', () => {
    const bounds = (spec: SandboxSpecInput, more?: { diskBytes?: number }) => {
      const { containers, initContainers, volumes } = pod(spec, undefined, more);
      const sizes = Object.fromEntries(volumes.map(({ name, emptyDir }) => [name, emptyDir.sizeLimit]));
      expect(Object.values(sizes)).not.toContain(undefined);
      const [limit, ...others] = [...containers, ...initContainers].map(
        ({ resources }) => resources.limits['ephemeral-storage'],
      );
      expect(others).toEqual([limit]);
      expect(containers[0]!.resources.requests['ephemeral-storage']).toBe(String(64 * MiB));
      return [limit, sizes['files']];
    };
    const both = (bytes: number) => [String(bytes), String(bytes)];
    expect(bounds({ limits: { diskBytes: 300 * MiB } })).toEqual(both(300 * MiB));
    expect(bounds({ limits: { diskBytes: null } })).toEqual(both(10 * 1024 * MiB));
    expect(bounds({ limits: { diskBytes: null } }, { diskBytes: 200 * MiB })).toEqual(both(200 * MiB));
    expect(bounds({ limits: { diskBytes: 300 * MiB } }, { diskBytes: 200 * MiB })).toEqual(both(300 * MiB));
  });

  it('leaves gVisor room above what the guest guards, and lets the first container have no more than the second', () => {
    const { initContainers, containers } = pod({ limits: { cpus: 0.5, memoryBytes: 128 * MiB } }, GVISOR);
    expect(containers[0]!.resources.limits).toMatchObject({ cpu: '500m', memory: String(320 * MiB) });
    expect(initContainers[0]!.resources).toEqual(containers[0]!.resources);
  });
});
