import { createHash } from 'node:crypto';
import type { SandboxSpec } from '@cay/sdk/protocol';

/** Of everything but the limits, which `resize` may change, and the platform, which is this one. */
export function hashOf({ limits: _limits, platform: _platform, ...spec }: SandboxSpec): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(spec)))
    .digest('hex')
    .slice(0, 32);
}

/** The same value with its keys in order, so that equal specs read the same. */
function sorted(value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  const pairs = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(
    pairs.sort(([one], [other]) => (one < other ? -1 : 1)).map(([key, each]) => [key, sorted(each)]),
  );
}
