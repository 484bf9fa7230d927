/** Copies of buckets as they are written: `data:/data`, `data:2026/input:/data,down`. */
import type { CreateSandboxInput } from '@cay/sdk/client';
import { usageError } from './failure.ts';

type BucketCopy = NonNullable<CreateSandboxInput['buckets']>[number];

const FORM =
  'write NAME:/path or NAME:PREFIX:/path, then ,down or ,up, ,deletions, ,conflict=bucket or ,conflict=sandbox';

export function parseBucketCopy(text: string): BucketCopy {
  const refuse = () => usageError(`"${text}" is no copy for --bucket`, FORM);
  const [head = '', ...options] = text.split(',');
  const parts = head.split(':');
  const path = parts.at(-1);
  const [bucket, prefix] = parts.slice(0, -1);
  if (!bucket || !path?.startsWith('/') || parts.length > 3) throw refuse();
  const copy: BucketCopy = { bucket, path, ...(prefix && { prefix: prefix.replace(/\/$/, '') }) };
  for (const option of options) {
    if (option === 'down' || option === 'up') copy.direction = option;
    else if (option === 'deletions') copy.deletions = true;
    else if (option === 'conflict=bucket') copy.onConflict = 'bucket';
    else if (option === 'conflict=sandbox') copy.onConflict = 'sandbox';
    else throw refuse();
  }
  return copy;
}
