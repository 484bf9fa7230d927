import { newId, SandboxSpecSchema, type SandboxSpecInput } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { volumeClaimName } from '../client/names.ts';
import type { VolumeSettings } from '../volumes/volume-settings.ts';
import { checkMounts, volumeLabels } from './pod-mounts.ts';
import { podSpec } from './pod-spec.ts';

const [data, other] = [newId('vol'), newId('vol')];
const at = (volume: string, path: string, readOnly = false) =>
  ({ type: 'volume', volume, path, readOnly }) as const;

function pod(spec: SandboxSpecInput, volumes?: VolumeSettings) {
  const options = {
    settings: { guestImage: 'guest:1', baseImage: 'base:1', ...(volumes && { volumes }) },
    runtime: { name: 'default', gvisor: false },
    pullPolicy: 'IfNotPresent',
    requests: { cpus: 0.05, memoryBytes: 64 * 1024 * 1024 },
  };
  return podSpec(undefined, SandboxSpecSchema.parse(spec), options) as {
    affinity?: { podAffinity: Record<string, unknown[]> };
    securityContext: { fsGroup?: number };
    containers: {
      volumeMounts: { name: string; mountPath: string; readOnly?: boolean; subPath?: string }[];
    }[];
    initContainers: { volumeMounts: object[]; command: string[] }[];
    volumes: { name: string; persistentVolumeClaim?: { claimName: string } }[];
  };
}

describe('volumes in a pod', () => {
  it('are there once each, however often they are mounted, and not for the installer', () => {
    const { volumes, containers, initContainers, securityContext } = pod({
      mounts: [at(data, '/a'), at(other, '/b', true), at(data, '/c', true)],
    });
    expect(volumes.slice(-2)).toEqual([
      { name: 'volume-0', persistentVolumeClaim: { claimName: volumeClaimName(data) } },
      { name: 'volume-1', persistentVolumeClaim: { claimName: volumeClaimName(other) } },
    ]);
    expect(containers[0]!.volumeMounts.slice(-3)).toEqual([
      { name: 'volume-0', mountPath: '/a' },
      { name: 'volume-1', mountPath: '/b', readOnly: true },
      { name: 'volume-0', mountPath: '/c', readOnly: true },
    ]);
    expect(initContainers[0]!.volumeMounts).toHaveLength(2);
    expect(securityContext.fsGroup).toBe(1000);
  });

  it('change nothing of a pod that has none', () => {
    expect(pod({})).not.toHaveProperty('affinity');
    expect(pod({}).securityContext).not.toHaveProperty('fsGroup');
  });

  it('take the place of directories of the pod, and have none of these in them', () => {
    const paths = (spec: SandboxSpecInput) =>
      pod(spec).containers[0]!.volumeMounts.map(({ mountPath }) => mountPath);
    const home = paths({ mounts: [at(data, '/home/user')] });
    expect(home.filter((path) => path === '/home/user')).toHaveLength(1);
    expect(paths({ workdir: '/work/sub', mounts: [at(data, '/work')] })).not.toContain('/work/sub');
    expect(paths({ workdir: '/work/sub' })).toContain('/work/sub');
    expect(pod({ mounts: [at(data, '/home/user')] }).initContainers[0]!.command.join(' ')).not.toContain(
      'home',
    );
  });

  it('bring pods together on one node, unless many nodes may have them', () => {
    const spec = { mounts: [at(data, '/a'), at(other, '/b')] };
    const terms = pod(spec).affinity!.podAffinity['requiredDuringSchedulingIgnoredDuringExecution'];
    expect(terms).toEqual(
      [data, other].map((id) => ({
        labelSelector: { matchExpressions: [{ key: `volume.cay.dev/${id}`, operator: 'Exists' }] },
        topologyKey: 'kubernetes.io/hostname',
      })),
    );
    expect(volumeLabels(SandboxSpecSchema.parse(spec))).toEqual({
      [`volume.cay.dev/${data}`]: '',
      [`volume.cay.dev/${other}`]: '',
    });
    expect(pod(spec, { access: 'ReadWriteMany' })).not.toHaveProperty('affinity');
  });
});

describe('checkMounts', () => {
  const check = (path: string) => checkMounts(SandboxSpecSchema.parse({ mounts: [at(data, path)] }));

  it.each(['/data', '/home/user', '/home/user/data', '/tmp/data', '/srv/else', '/.caymans'])(
    'takes %s',
    (path) => expect(() => check(path)).not.toThrow(),
  );

  it.each(['/etc', '/etc/ssl', '/.cay/closed', '/.cay-run', '/home', '/var', '/a:b', `/${'x'.repeat(256)}`])(
    'refuses %s',
    (path) => expect(() => check(path)).toThrow(expect.objectContaining({ code: 'invalid_argument' })),
  );
});
