/**
 * Buckets as they are written: copies (`data:/data`, `data:2026/input:/data,down`) and mounts
 * (`data:/data,mount`).
 */
import type { CreateSandboxInput } from '@cay/sdk/client';
import { usageError } from './failure.ts';

type BucketCopy = NonNullable<CreateSandboxInput['buckets']>[number];
type BucketMount = Extract<NonNullable<CreateSandboxInput['mounts']>[number], { type: 'bucket' }>;

const FORM =
  'write NAME:/path or NAME:PREFIX:/path, then ,mount or ,mount,ro; or for a copy ,down or ,up, ,deletions, ,conflict=bucket or ,conflict=sandbox';

export function parseBucket(text: string): { copy: BucketCopy } | { mount: BucketMount } {
  const refuse = () => usageError(`"${text}" is no bucket for --bucket`, FORM);
  const [head = '', ...options] = text.split(',');
  const parts = head.split(':');
  const path = parts.at(-1);
  const [bucket, prefix] = parts.slice(0, -1);
  if (!bucket || !path?.startsWith('/') || parts.length > 3) throw refuse();
  const copy: BucketCopy = { bucket, path, ...(prefix && { prefix: prefix.replace(/\/$/, '') }) };
  if (options.includes('mount')) {
    if (options.some((option) => option !== 'mount' && option !== 'ro' && option !== 'rw')) throw refuse();
    return { mount: { type: 'bucket', ...copy, readOnly: options.includes('ro') } };
  }
  for (const option of options) {
    if (option === 'down' || option === 'up') copy.direction = option;
    else if (option === 'deletions') copy.deletions = true;
    else if (option === 'conflict=bucket') copy.onConflict = 'bucket';
    else if (option === 'conflict=sandbox') copy.onConflict = 'sandbox';
    else throw refuse();
  }
  return { copy };
}
