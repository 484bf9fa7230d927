import { isAbsolute } from 'node:path';
import { UnitError } from '../lib/units.ts';
import { parseBucketUrl, type BucketAddress } from '../s3/bucket-address.ts';
import { anyText, listOf, parsed } from './kinds.ts';
import { REGISTRY } from './registries.ts';
import { LISTED, setting } from './setting.ts';

export type StorePlace = { directory: string } | { bucket: BucketAddress };

const credential = (help: string) =>
  setting(anyText, { group: 'storage', value: 'text', help, flag: false, secret: true });

/** Where archived sandboxes go. */
export const storageSettings = {
  store: setting(parsed(storePlaceIn), {
    group: 'storage',
    value: 'place',
    help: 'where archived sandboxes go: a directory, or s3://bucket/prefix?region=…&endpoint=…',
    usually: 'a directory in the data directory',
  }),
  storeCredentials: setting(anyText, {
    group: 'storage',
    value: 'file',
    help: "credentials for the store's bucket, as AWS writes them, profile [default]; read again when it changes",
    path: true,
  }),
  storeAccessKeyId: credential("the id of the access key for the store's bucket, in place of a file"),
  storeSecretKey: credential('the secret of that access key'),
  storeSessionToken: credential('its session token, if it has one'),
  allowBucketEndpoint: setting(listOf(REGISTRY, 'an endpoint: its host, and its port if it has one'), {
    group: 'storage',
    value: 'hosts',
    help: `S3 servers on this machine, in private networks or without TLS that buckets of projects may be on; ${LISTED}`,
    usually: 'none',
    repeat: true,
  }),
};

function storePlaceIn(text: string): StorePlace {
  if (/^[a-z0-9]+:\/\//i.test(text)) return { bucket: parseBucketUrl(text) };
  if (!isAbsolute(text)) throw new UnitError('must be an absolute path or s3://bucket/prefix');
  return { directory: text };
}
