/**
 * Much through the client of S3 servers: one large object, and many small ones. Not a part of `npm test`:
 *
 *     CAY_TEST_VERSITYGW=/path/to/versitygw npm run buckets -- --gigabytes 10 --objects 100000
 *     … npm run buckets -- --gigabytes 1 --objects 0 --beside     # beside rclone and the AWS command line
 *     … npm run buckets -- --gigabytes 1 --objects 0 --beside --mount     # and through a mount, as root
 */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { parseArgs, promisify } from 'node:util';
import { bucketAddress } from '../../server/src/s3/bucket-address.ts';
import { openBucket } from '../../server/src/s3/open-bucket.ts';
import { startS3Server, type S3Server } from '../support/s3-server.ts';
import { mounted } from './mounted.ts';

const run = promisify(execFile);
const MiB = 1024 * 1024;
const { values } = parseArgs({
  options: {
    gigabytes: { type: 'string', default: '10' },
    objects: { type: 'string', default: '100000' },
    beside: { type: 'boolean', default: false },
    mount: { type: 'boolean', default: false },
  },
});

const started = await startS3Server();
if ('why' in started) throw new Error(`No S3 server: ${started.why}`);
const server: S3Server = started;
let mostRss = 0;
const watching = setInterval(() => (mostRss = Math.max(mostRss, process.memoryUsage.rss())), 100);
const bucket = openBucket({
  address: bucketAddress({ bucket: server.bucket, endpoint: server.endpoint, region: server.region }),
  credentials: () => server.credentials,
  reach: 'private',
});
try {
  console.log(`S3 server: ${server.program}`);
  const bytes = Number(values.gigabytes) * 1024 * MiB;
  if (bytes > 0) await (values.beside ? beside(bytes) : large(bytes));
  const count = Number(values.objects);
  if (count > 0) await small(count);
  console.log(`most memory of this process: ${Math.round(mostRss / MiB)} MiB`);
} finally {
  clearInterval(watching);
  bucket.close();
  await server.stop();
}

async function timed(what: string, bytes: number, work: () => Promise<unknown>): Promise<void> {
  const from = performance.now();
  await work();
  const seconds = (performance.now() - from) / 1000;
  const rate = bytes > 0 ? `, ${(bytes / MiB / seconds).toFixed(0)} MiB/s` : '';
  console.log(`${what}: ${seconds.toFixed(1)} s${rate}`);
}

async function large(bytes: number): Promise<void> {
  const block = randomBytes(MiB);
  const sent = createHash('sha256');
  const content = async function* () {
    for (let at = 0; at < bytes; at += MiB) {
      block.writeDoubleBE(at);
      const chunk = Buffer.from(block);
      sent.update(chunk);
      yield chunk;
    }
  };
  await timed(`put ${bytes / MiB} MiB`, bytes, () => bucket.put('large', content()));
  const got = createHash('sha256');
  await timed(`get ${bytes / MiB} MiB`, bytes, async () => {
    for await (const chunk of bucket.get('large')) got.update(chunk);
  });
  if (sent.digest('hex') !== got.digest('hex')) throw new Error('The object is another');
  await bucket.remove(['large']);
}

async function small(count: number): Promise<void> {
  const keys = Array.from(
    { length: count },
    (_, index) => `small/${index % 100}/${String(index).padStart(7, '0')}`,
  );
  const each = (work: (key: string) => Promise<unknown>) => async () => {
    const queue = keys.values();
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        for (const key of queue) await work(key);
      }),
    );
  };
  const content = (key: string) =>
    (async function* () {
      yield Buffer.from(key);
    })();
  await timed(
    `put ${count} objects`,
    0,
    each((key) => bucket.put(key, content(key))),
  );
  let found = 0;
  await timed(`list ${count} objects`, 0, async () => {
    for await (const _ of bucket.list('small/')) found++;
  });
  if (found !== count) throw new Error(`${found} of ${count} objects are listed`);
  await timed(
    `get ${count} objects`,
    0,
    each(async (key) => {
      const text = Buffer.concat(await Array.fromAsync(bucket.get(key))).toString();
      if (text !== key) throw new Error(`"${key}" has another content`);
    }),
  );
  await timed(`remove ${count} objects`, 0, () => bucket.remove(keys));
}

/** File to object and back, as the others do it, each in turn. */
async function beside(bytes: number): Promise<void> {
  const dir = await mkdtemp('/tmp/cay-beside-');
  const [source, target] = [join(dir, 'source'), join(dir, 'target')];
  await writeFile(source, '');
  const block = randomBytes(64 * MiB);
  await pipeline(async function* () {
    for (let at = 0; at < bytes; at += block.length)
      yield block.subarray(0, Math.min(block.length, bytes - at));
  }, createWriteStream(source));
  const { accessKeyId, secretKey } = server.credentials;
  // rclone takes no other authorities, and the server on loopback needs none.
  const { AWS_CA_BUNDLE: _, ...environment } = process.env;
  const keys = {
    ...environment,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretKey,
    AWS_REGION: server.region,
  };
  const rclone = {
    ...keys,
    RCLONE_CONFIG_S_TYPE: 's3',
    RCLONE_CONFIG_S_PROVIDER: 'Other',
    RCLONE_CONFIG_S_ENV_AUTH: 'true',
    RCLONE_CONFIG_S_ENDPOINT: server.endpoint,
    RCLONE_CONFIG_S_REGION: server.region,
  };
  const aws = (...args: string[]) =>
    run('aws', ['--endpoint-url', server.endpoint, 's3', 'cp', '--quiet', ...args], { env: keys });
  const copy = (...args: string[]) =>
    run('rclone', ['copyto', '--s3-no-check-bucket', ...args], { env: rclone });
  const uri = `s3://${server.bucket}/beside`;
  const remote = `s:${server.bucket}/beside`;
  const ways = {
    cay: {
      up: () => bucket.put('beside', createReadStream(source, { highWaterMark: MiB }), { sizeBytes: bytes }),
      down: () => pipeline(bucket.get('beside'), createWriteStream(target)),
    },
    rclone: { up: () => copy(source, remote), down: () => copy(remote, target) },
    aws: { up: () => aws(source, uri), down: () => aws(uri, target) },
  };
  try {
    for (let round = 1; round <= 2; round++)
      for (const [name, { up, down }] of Object.entries(ways)) {
        await rm(target, { force: true });
        await bucket.remove(['beside']);
        await timed(`round ${round}, ${name} up`, bytes, up);
        await timed(`round ${round}, ${name} down`, bytes, down);
      }
    await rm(target, { force: true });
    if (values.mount) await mounted(bucket, bytes, source, timed);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}
