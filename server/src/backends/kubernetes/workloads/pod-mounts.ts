/** Named volumes in a pod: where they may be, and what the pod says of them. */
import { posix } from 'node:path';
import { CayError, type SandboxSpec, type VolumeId, type VolumeMount } from '@cay/sdk/protocol';
import { USER } from '../../support/sandbox-user.ts';
import { volumeClaimName } from '../client/names.ts';
import type { VolumeSettings } from '../volumes/volume-settings.ts';

/** Directories of the node, the kernel and the guest. */
export const RESERVED = ['/.cay', '/.cay-run', '/dev', '/etc', '/proc', '/sys'];
/** What lies in these can be written in every pod. */
const PARENTS = ['/', '/home', '/var'];
const MAX_NAME_BYTES = 255;

const isIn = (path: string, directory: string) => path === directory || path.startsWith(`${directory}/`);

export const volumeMountsOf = ({ mounts = [] }: SandboxSpec): VolumeMount[] =>
  mounts.filter((mount) => mount.type === 'volume');

/** Where something is mounted, and what has the files of no snapshot. */
export const mountPoints = (spec: SandboxSpec): string[] => (spec.mounts ?? []).map(({ path }) => path);

/** The volumes of a spec, each once. */
export const volumesOf = (spec: SandboxSpec): VolumeId[] => [
  ...new Set(volumeMountsOf(spec).map(({ volume }) => volume as VolumeId)),
];

/** Refuses what could hide a part of the pod, or what no node could mount. */
export function checkMounts(spec: SandboxSpec): void {
  for (const path of mountPoints(spec)) {
    const refuse = (why: string) =>
      new CayError(
        'invalid_argument',
        `A pod cannot mount anything at ${JSON.stringify(path.slice(0, 64))}: ${why}`,
        {
          details: { path: ['mounts'] },
          hint: 'choose a directory of its own, such as /data',
        },
      );
    // The cluster takes no ":" in such a path.
    if (path.includes(':')) throw refuse('it must have no ":"');
    if (
      posix.basename(path) !== '' &&
      path.split('/').some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)
    )
      throw refuse(`a name in it has more than ${MAX_NAME_BYTES} bytes`);
    const taken = RESERVED.find((directory) => isIn(path, directory));
    if (taken !== undefined) throw refuse(`"${taken}" is not the sandbox's to have`);
    if (PARENTS.includes(path)) throw refuse('directories of the pod lie below it');
  }
}

/** Directories of the pod that no volume takes the place of. */
export function besideMounts<D extends { path: string }>(directories: D[], spec: SandboxSpec): D[] {
  const points = mountPoints(spec);
  return directories.filter(({ path }) => !points.some((point) => isIn(path, point)));
}

interface PodMounts {
  volumes: object[];
  volumeMounts: object[];
  /** Of the pod's security context: a new volume is root's, and is handed to the group of the pod. */
  security: object;
  /** Of the pod: what puts it where its volumes are. */
  placement: object;
}

export function podMounts(spec: SandboxSpec, settings: VolumeSettings = {}): PodMounts {
  const volumes = volumesOf(spec);
  if (volumes.length === 0) return { volumes: [], volumeMounts: [], security: {}, placement: {} };
  const nameOf = (id: VolumeId) => `volume-${volumes.indexOf(id)}`;
  return {
    volumes: volumes.map((id) => ({
      name: nameOf(id),
      persistentVolumeClaim: { claimName: volumeClaimName(id) },
    })),
    // Not by a subpath: to that a node follows the links that programs make in the volume.
    volumeMounts: volumeMountsOf(spec).map(({ volume, path, readOnly }) => ({
      name: nameOf(volume as VolumeId),
      mountPath: path,
      ...(readOnly && { readOnly }),
    })),
    security: { fsGroup: USER.gid, fsGroupChangePolicy: 'OnRootMismatch' },
    placement: settings.access === 'ReadWriteMany' ? {} : { affinity: besideOthers(volumes) },
  };
}

/** Labels of the pod by which others that have one of its volumes find it. */
export function volumeLabels(spec: SandboxSpec): Record<string, string> {
  return Object.fromEntries(volumesOf(spec).map((id) => [labelOf(id), '']));
}

const labelOf = (id: VolumeId) => `volume.cay.dev/${id}`;

/**
 * On the node of those that have the same volumes: another one cannot attach them meanwhile. The first pod
 * finds none, and may be anywhere.
 */
function besideOthers(volumes: readonly VolumeId[]): object {
  const terms = volumes.map((id) => ({
    labelSelector: { matchExpressions: [{ key: labelOf(id), operator: 'Exists' }] },
    topologyKey: 'kubernetes.io/hostname',
  }));
  return { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: terms } };
}
