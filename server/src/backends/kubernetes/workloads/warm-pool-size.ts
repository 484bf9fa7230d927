import { CayError } from '@cay/sdk/protocol';

const MAX_POOL = 1000;

/** The number of sandboxes that a warm pool has. Rejects `invalid_argument`. */
export function checkWarmPool(size = 0): number {
  if (Number.isInteger(size) && size >= 0 && size <= MAX_POOL) return size;
  throw new CayError(
    'invalid_argument',
    `A warm pool of "${size}" sandboxes cannot be: must be 0 to ${MAX_POOL}`,
  );
}
