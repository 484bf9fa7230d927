/** A server with a bucket, for tests of mounts, and what a machine has of them. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { expect } from 'vitest';
import { bucketAddress } from '../../server/src/s3/bucket-address.ts';
import type { Bucket } from '../../server/src/s3/bucket.ts';
import { openBucket } from '../../server/src/s3/open-bucket.ts';
import { openCay, type Cay } from './cay.ts';
import type { S3Server } from './s3-server.ts';

/** The objects below a prefix, as others see them. */
export function bucketAt({ bucket, endpoint, credentials }: S3Server, prefix: string): Bucket {
  return openBucket({
    address: bucketAddress({ bucket, prefix, endpoint }),
    credentials: () => credentials,
    reach: 'private',
  });
}

export async function textOf(bucket: Bucket, key: string): Promise<string | undefined> {
  if (!(await bucket.head(key))) return undefined;
  return Buffer.concat(await Array.fromAsync(bucket.get(key))).toString();
}

export async function ok(cay: Cay, ...args: Parameters<Cay['run']>): Promise<string> {
  const { code, stdout, stderr } = await cay.run(...args);
  expect(
    code,
    `${args.filter((part) => typeof part === 'string').join(' ')}: ${stderr}${stdout.slice(-500)}`,
  ).toBe(0);
  return stdout;
}

export const sh = (cay: Cay, script: string, box = 'box') => ok(cay, 'exec', box, '--', 'sh', '-c', script);

/** A server whose bucket `data` has that prefix; `endpoint` may be that of a proxy. */
export async function withBucket(
  server: S3Server,
  {
    prefix,
    endpoint = server.endpoint,
    env = {},
  }: { prefix: string; endpoint?: string; env?: Record<string, string> },
): Promise<Cay> {
  const { bucket, credentials } = server;
  const cay = await openCay({ CAY_ALLOW_BUCKET_ENDPOINT: new URL(endpoint).host, ...env });
  await ok(cay, 'up', '--detach');
  await ok(cay, 'secret', 'set', 's3-key', { input: credentials.secretKey });
  const address = [`s3://${bucket}/${prefix}`, '--endpoint', endpoint];
  const keys = ['--access-key-id', credentials.accessKeyId, '--secret', 's3-key'];
  await ok(cay, 'bucket', 'add', 'data', ...address, ...keys);
  return cay;
}

/** The pumps of this data directory. */
export function pumpsOf(cay: Cay): number[] {
  return readdirSync('/proc')
    .filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        const isPump = words[1] === 'bucket-mount' && words[3]!.startsWith(cay.dataDir);
        return isPump && readlinkSync(`/proc/${pid}/exe`) !== '';
      } catch {
        return false;
      }
    })
    .map(Number);
}

export function mountsOf(cay: Cay): string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => line.includes('fuse.cay-bucket') && line.includes(cay.dataDir));
}
