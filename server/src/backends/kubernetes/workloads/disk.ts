/**
 * What a pod may write: Kubernetes calls it ephemeral storage, and the kubelet evicts a pod that has more.
 */
import type { Limits } from '@cay/sdk/protocol';
import { UnitError } from '../../../lib/units.ts';

const GiB = 1024 ** 3;
/**
 * The disk limit of a sandbox that asks for none. Every pod has a limit: without one it could fill the disk
 * of its node.
 */
export const DEFAULT_DISK_BYTES = 10 * GiB;
/**
 * The request for ephemeral storage of each container. Without it the scheduler would reserve the whole
 * limit.
 */
export const DISK_REQUEST = '64Mi';
export const DISK_REQUEST_BYTES = 64 * 1024 * 1024;

export const EPHEMERAL_STORAGE = 'ephemeral-storage';

const UNITS: Record<string, number> = {
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  Ki: 1024,
  Mi: 1024 ** 2,
  Gi: GiB,
  Ti: 1024 ** 4,
};
const BYTES = /^(\d+(?:\.\d+)?)(k|M|G|T|Ki|Mi|Gi|Ti)?$/;
const LEAST_BYTES = 16 * 1024 * 1024;

/** The bytes of an amount as Kubernetes writes it, such as `10Gi`. Throws a `UnitError`. */
export function diskBytesOf(amount: string): number {
  const [, number, unit = ''] = BYTES.exec(amount) ?? [];
  const bytes = Math.floor(Number(number) * (UNITS[unit] ?? 1));
  if (bytes >= LEAST_BYTES && Number.isSafeInteger(bytes)) return bytes;
  throw new UnitError('must be an amount of 16Mi or more, such as 10Gi');
}

/** What a sandbox may write, all that its pod keeps on its node together. */
export function diskLimitOf(
  { diskBytes }: Pick<Limits, 'diskBytes'>,
  settings: { diskBytes?: number },
): number {
  return diskBytes ?? settings.diskBytes ?? DEFAULT_DISK_BYTES;
}
