import { CayError } from '@cay/sdk/protocol';
import type { BucketCall, BucketObject } from './bucket.ts';
import type { S3Client } from './client.ts';
import { unquoted } from './upload.ts';
import { textOf } from './xml.ts';

/** What the protocol copies in one request. */
const MOST_COPIED = 5 * 1024 ** 3;
/** A server may copy all of it before it answers. */
const COPY_MS = 5 * 60_000;

export async function copyObject(
  client: S3Client,
  object: BucketObject,
  to: string,
  { signal }: BucketCall,
): Promise<BucketObject> {
  const { key, etag, sizeBytes } = object;
  if (sizeBytes > MOST_COPIED)
    throw new CayError('resource_exhausted', `"${key}" is too large to be copied by the server`);
  const { document } = await client.document({
    what: `copy "${key}" in`,
    method: 'PUT',
    key: to,
    source: key,
    headers: etag === '' ? {} : { 'x-amz-copy-source-if-match': `"${etag}"` },
    patienceMs: COPY_MS,
    signal,
  });
  const made = unquoted(textOf(document, 'ETag'));
  if (document?.name !== 'CopyObjectResult' || made === '')
    throw new CayError('unavailable', `Cannot copy "${key}": the server does not say that it did`);
  return { key: to, sizeBytes, etag: made, modifiedAtMs: Date.now() };
}
