/** Opens buckets of projects for transfers, with their credentials, and bounds how many run at once. */
import { CayError, type BucketInfo } from '@cay/sdk/protocol';
import type { Tables } from '../../records/tables/tables.ts';
import { bucketAddress } from '../../s3/bucket-address.ts';
import type { Bucket } from '../../s3/bucket.ts';
import { openBucket } from '../../s3/open-bucket.ts';
import { requireAllowedEndpoint } from '../../s3/transport.ts';
import type { Core } from '../core.ts';
import { transferTurns } from './transfer-turns.ts';

export interface ProjectBuckets {
  /** Rejects `not_found`. */
  find(project: string, name: string): Promise<BucketInfo>;
  /** Rejects `permission_denied` for an endpoint that may not be used, and `invalid_argument`. */
  check(info: BucketInfo): void;
  /** Opens it for longer. The caller closes it. A secret that changes is used within a minute. */
  open(project: string, info: BucketInfo): Promise<Bucket>;
  /** Opens it while the task runs, when it is the project's turn. */
  using<T>(project: string, info: BucketInfo, task: (bucket: Bucket) => Promise<T>): Promise<T>;
}

/** How long a secret that was opened is used. */
const SECRETS_MS = 60_000;
/** How long one may take. */
export const TRANSFER_MS = 2 * 3600 * 1000;

export function openProjectBuckets({
  onError,
  records,
  endpoints,
}: Pick<Core, 'onError' | 'records'> & {
  /** Hosts, with their ports if these are not usual, that may be in a private network or without TLS. */
  endpoints: ReadonlySet<string>;
}): ProjectBuckets {
  const turns = transferTurns();

  function check(info: BucketInfo): 'private' | 'public' {
    const { endpoint } = bucketAddress(info);
    if (endpoints.has(endpoint.host)) return 'private';
    requireAllowedEndpoint(endpoint, { allowPrivate: false });
    if (endpoint.protocol !== 'https:')
      throw new CayError('permission_denied', `Buckets at "${endpoint.host}" need TLS`, {
        hint: 'give https://, or have the operator name the endpoint with --allow-bucket-endpoint',
      });
    return 'public';
  }

  return {
    async find(project, name) {
      const info = await records.buckets.get(project, name);
      if (!info) throw new CayError('not_found', `Bucket "${name}" does not exist`);
      return info;
    },
    check,
    async open(project, info) {
      const reach = check(info);
      let known = { atMs: Date.now(), credentials: await credentialsOf(records, project, info) };
      return openBucket({
        address: bucketAddress(info),
        async credentials() {
          if (known.atMs < Date.now() - SECRETS_MS)
            known = { atMs: Date.now(), credentials: await credentialsOf(records, project, info) };
          return known.credentials;
        },
        reach,
        onError,
      });
    },
    using: (project, info, task) =>
      turns.run(project, async () => {
        const reach = check(info);
        const credentials = await credentialsOf(records, project, info);
        const bucket = openBucket({
          address: bucketAddress(info),
          credentials: () => credentials,
          reach,
          onError,
        });
        try {
          return await task(bucket);
        } finally {
          bucket.close();
        }
      }),
  };
}

async function credentialsOf(
  on: Pick<Tables, 'storedSecrets'>,
  project: string,
  { accessKeyId, secret, sessionToken }: BucketInfo,
) {
  const names = [secret, ...(sessionToken === undefined ? [] : [sessionToken])];
  const opened = await on.storedSecrets.open(project, names);
  const valueOf = (name: string) => {
    const found = opened.find((one) => one.name === name);
    const value = found?.value.trim();
    // It goes into a header.
    if (value !== undefined && /^[\x21-\x7e]+$/.test(value)) return value;
    if (found)
      throw new CayError(
        'failed_precondition',
        `The secret "${name}" of the bucket is no key: it has other characters`,
      );
    throw new CayError('failed_precondition', `The bucket uses the secret "${name}", which is not stored`, {
      details: { secret: name },
      hint: `store it: cay secret set ${name}`,
    });
  };
  return {
    accessKeyId,
    secretKey: valueOf(secret),
    ...(sessionToken !== undefined && { sessionToken: valueOf(sessionToken) }),
  };
}
