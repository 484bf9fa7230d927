import { isCayError } from '@cay/sdk/protocol';
import { expectedEtag } from '../s3/expected-etag.ts';
import type { Bucket, BucketObject, PutOptions } from '../s3/bucket.ts';
import { factsOf } from './listings.ts';
import type { ObjectFacts } from './nodes.ts';
import type { Spool } from './spools.ts';

const UPLOAD_MS = 2 * 3600_000;
const LOOK_MS = 60_000;

/**
 * Puts a content where its object belongs, unless somebody else has changed that one. Rejects as `put` does.
 */
export async function uploadSpool(
  bucket: Bucket,
  key: string,
  { base, isNew, size, tried }: Pick<Spool, 'base' | 'isNew' | 'size' | 'tried'>,
  { content, signal }: { content(): AsyncGenerator<Buffer, void>; signal: AbortSignal },
): Promise<{ facts: ObjectFacts; modifiedAtMs: number }> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(UPLOAD_MS)]);
  const put = (condition: PutOptions) =>
    bucket.put(key, content(), { sizeBytes: size, signal: within, ...condition });
  const shown = (object: BucketObject) => ({
    facts: factsOf({ ...object, sizeBytes: size }),
    modifiedAtMs: object.modifiedAtMs,
  });
  try {
    return shown(
      await put(isNew ? { ifAbsent: true } : base && base.etag !== '' ? { ifMatch: base.etag } : {}),
    );
  } catch (error) {
    if (!isCayError(error, 'conflict') && !isCayError(error, 'already_exists')) throw error;
    // Our own attempt may have changed it whose answer was lost, or an earlier server that was killed then.
    const there = await bucket.head(key, { signal: AbortSignal.timeout(LOOK_MS) });
    if (there === undefined) throw error;
    if (there.sizeBytes === size && there.etag === (await expectedEtag(content(), size))) return shown(there);
    if (!tried.includes(there.etag)) throw error;
    return shown(await put({ ifMatch: there.etag }));
  }
}
