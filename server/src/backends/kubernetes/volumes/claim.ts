/** The claim of a named volume: what is written, and what it says about itself. */
import { isId, type VolumeId } from '@cay/sdk/protocol';
import type { VolumeFacts } from '../../backend.ts';
import { LABELS, volumeClaimName } from '../client/names.ts';
import type { KubernetesObject } from '../client/objects.ts';
import { DEFAULT_VOLUME_BYTES, type VolumeSettings } from './volume-settings.ts';

export interface VolumeClaim extends KubernetesObject {
  spec?: { resources?: { requests?: { storage?: string } } };
}

export interface ClaimOptions {
  namespace: string;
  installation: string;
  project: string | undefined;
  /** Null: the operator's. */
  sizeBytes: number | null;
  volumes: VolumeSettings | undefined;
}

/**
 * It is in the making until that label is taken off. It does not say who manages it: what says so and has no
 * owner is removed as an orphan, also by servers of versions that know of no volumes.
 */
export function renderVolumeClaim(
  id: VolumeId,
  { namespace, installation, project, sizeBytes, volumes = {} }: ClaimOptions,
): object {
  const { storageClass, access = 'ReadWriteOnce' } = volumes;
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      name: volumeClaimName(id),
      namespace,
      labels: {
        [LABELS.installation]: installation,
        [LABELS.volume]: id,
        [LABELS.making]: 'true',
        ...(project !== undefined && { [LABELS.project]: project }),
      },
    },
    spec: {
      accessModes: [access],
      resources: { requests: { storage: String(sizeBytes ?? volumes.sizeBytes ?? DEFAULT_VOLUME_BYTES) } },
      ...(storageClass !== undefined && { storageClassName: storageClass }),
    },
  };
}

/** The volume of a claim; `undefined` if it is not one of ours. */
export function volumeOf({ metadata: { name, labels } }: KubernetesObject): VolumeId | undefined {
  const id = labels?.[LABELS.volume];
  return isId('vol', id) && volumeClaimName(id as VolumeId) === name ? (id as VolumeId) : undefined;
}

export const isInTheMaking = ({ metadata }: KubernetesObject) =>
  metadata.labels?.[LABELS.making] !== undefined;
export const isGoing = ({ metadata }: KubernetesObject) => metadata.deletionTimestamp !== undefined;

export function factsOf(id: VolumeId, claim: VolumeClaim): Omit<VolumeFacts, 'usedBytes'> {
  return { id, readOnly: false, sizeBytes: quantityBytes(claim.spec?.resources?.requests?.storage) };
}

const UNITS = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
const QUANTITY = /^(\d+(?:\.\d+)?)(?:(Ki|Mi|Gi|Ti|Pi|Ei)|(k|M|G|T|P|E)|[eE](\d{1,2}))?$/;

/** The bytes of an amount as the cluster writes it; null for one that is none. */
export function quantityBytes(amount: string | undefined): number | null {
  const found = QUANTITY.exec(amount ?? '');
  if (!found) return null;
  const [, number, binary, decimal, exponent] = found;
  const factor =
    binary !== undefined
      ? 1024 ** UNITS.indexOf(binary[0]!.replace('K', 'k'))
      : decimal !== undefined
        ? 1000 ** UNITS.indexOf(decimal)
        : 10 ** Number(exponent ?? 0);
  return Math.ceil(Number(number) * factor);
}
