/** Opens the store of archived sandboxes that the settings name, sealed with the installation's key. */
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { SealedBox } from './lib/sealed-box.ts';
import { shownAddress, type BucketAddress } from './s3/bucket-address.ts';
import type { BucketCredentials } from './s3/bucket.ts';
import { openBucket } from './s3/open-bucket.ts';
import { credentialsInFile } from './s3/stored-credentials.ts';
import { openDirectoryStore } from './storage/directory.ts';
import { openS3Store } from './storage/s3.ts';
import { sealedStore } from './storage/sealed-store.ts';
import type { Store } from './storage/store.ts';

export interface ArchivesOptions {
  /** Default: a directory in the data directory. */
  place?: { directory: string } | { bucket: BucketAddress } | undefined;
  /** A file in the form of AWS. */
  credentialsFile?: string | undefined;
  accessKeyId?: string | undefined;
  secretKey?: string | undefined;
  sessionToken?: string | undefined;
}

export async function openArchives(
  { place, ...given }: ArchivesOptions,
  { box, dataDir, onError }: { box: SealedBox; dataDir: string; onError(error: unknown): void },
): Promise<Store> {
  if (place && 'bucket' in place) {
    const { bucket: address } = place;
    const bucket = openBucket({ address, credentials: credentialsOf(given), reach: 'anywhere', onError });
    try {
      // Others may write to a bucket: what is not sealed there is not ours.
      return sealedStore(await openS3Store({ bucket }), { box, alsoPlain: false });
    } catch (error) {
      bucket.close();
      if (!(error instanceof CayError)) throw error;
      throw new CayError(error.code, `Cannot open the store ${shownAddress(address)}: ${error.message}`, {
        cause: error,
        hint: error.hint,
      });
    }
  }
  const dir = place?.directory ?? join(dataDir, 'archives');
  return sealedStore(await openDirectoryStore({ dir }), { box, alsoPlain: true });
}

function credentialsOf({
  credentialsFile,
  accessKeyId,
  secretKey,
  sessionToken,
}: Omit<ArchivesOptions, 'place'>): () => BucketCredentials {
  if (credentialsFile !== undefined) return credentialsInFile(credentialsFile);
  if (accessKeyId === undefined || secretKey === undefined)
    throw new CayError('failed_precondition', 'The store is a bucket, and there are no credentials for it', {
      hint: 'set CAY_STORE_ACCESS_KEY_ID and CAY_STORE_SECRET_KEY, or name a file with --store-credentials',
    });
  return () => ({ accessKeyId, secretKey, sessionToken });
}
