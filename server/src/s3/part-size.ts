import { CayError } from '@cay/sdk/protocol';

const MiB = 1024 * 1024;
export const PART_BYTES = 8 * MiB;
const MOST_PARTS = 10_000;
const LARGEST_PART = 64 * MiB;

/**
 * The size of a part by its number, from 0. Where the size of the whole is not known, parts grow: the
 * protocol has 10,000 of them at most, and each is held in memory.
 */
export function partBytes(number: number, sizeBytes: number | undefined): number {
  if (number >= MOST_PARTS) throw tooLarge();
  if (sizeBytes === undefined) return Math.min(PART_BYTES * 2 ** Math.floor(number / 2000), LARGEST_PART);
  const even = Math.ceil(sizeBytes / MOST_PARTS / MiB) * MiB;
  if (even > LARGEST_PART) throw tooLarge();
  return Math.max(PART_BYTES, even);
}

function tooLarge(): CayError {
  return new CayError(
    'resource_exhausted',
    'The object is too large: 370 GB are the most, or 625 GB of a known size',
  );
}
