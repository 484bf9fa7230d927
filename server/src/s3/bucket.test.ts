/** The client against an S3 server that is not ours, and a proxy in front of it that breaks things. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startFaultyProxy, type FaultyProxy } from '../../../test/support/faulty-proxy.ts';
import { startS3Server, type S3Server } from '../../../test/support/s3-server.ts';
import { presignV4 } from '../lib/sigv4.ts';
import { bucketAddress } from './bucket-address.ts';
import type { Bucket } from './bucket.ts';
import { openBucket, type OpenBucketOptions } from './open-bucket.ts';

const MiB = 1024 * 1024;
const started = await startS3Server();
if ('why' in started) console.log(`skipped: no S3 server: ${started.why}`);

describe.skipIf('why' in started)('a bucket', () => {
  const server = started as S3Server;
  let proxy: FaultyProxy;
  let bucket: Bucket;
  const opened: Bucket[] = [];

  function open(options: Partial<OpenBucketOptions> & { prefix?: string } = {}): Bucket {
    const { prefix = 'client/', ...rest } = options;
    const found = openBucket({
      address: bucketAddress({
        bucket: server.bucket,
        prefix,
        endpoint: proxy.endpoint,
        region: server.region,
      }),
      credentials: () => server.credentials,
      reach: 'private',
      pauseMs: 5,
      ...rest,
    });
    opened.push(found);
    return found;
  }

  beforeAll(async () => {
    proxy = await startFaultyProxy(server.endpoint);
    bucket = open();
  });
  afterEach(() => {
    proxy.fault = () => undefined;
    proxy.seen.length = 0;
  });
  afterAll(async () => {
    for (const one of opened) one.close();
    await proxy.stop();
    await server.stop();
  });

  it('gives back what was put, under any key', async () => {
    for (const key of ['plain', 'with space', 'a/b/ü+%25&?=.txt', "quo'te(1)*!", '日本', '-', '~']) {
      const content = randomBytes(100);
      const { etag, sizeBytes } = await bucket.put(key, each([content]));
      expect(sizeBytes).toBe(100);
      expect(await bucket.head(key)).toMatchObject({ key, sizeBytes: 100, etag });
      expect(await read(bucket, key)).toEqual(content);
      expect((await Array.fromAsync(bucket.list(key))).map((one) => one.key)).toEqual([key]);
      await bucket.remove([key]);
      expect(await bucket.head(key)).toBeUndefined();
    }
  });

  it('puts and gets what is empty', async () => {
    await bucket.put('empty', each([]));
    expect(await read(bucket, 'empty')).toHaveLength(0);
    await bucket.put('empty', each([new Uint8Array(0)]), { sizeBytes: 0 });
    expect(await bucket.head('empty')).toMatchObject({ sizeBytes: 0 });
  });

  it('puts a large object in parts and reads it in ranges', async () => {
    const content = randomBytes(20 * MiB + 123);
    await bucket.put('large', pieces(content, 100_000));
    expect(proxy.seen.filter((line) => line.includes('partNumber='))).toHaveLength(3);
    expect(hash(await read(bucket, 'large'))).toBe(hash(content));
    expect(proxy.seen.filter((line) => line.startsWith('GET '))).toHaveLength(3);
    expect(await Array.fromAsync(bucket.uploads())).toEqual([]);
  });

  it('says not_found for a key and for a bucket that are not there', async () => {
    await expect(read(bucket, 'absent')).rejects.toMatchObject({ code: 'not_found' });
    const address = bucketAddress({
      bucket: 'no-such-bucket',
      endpoint: proxy.endpoint,
      region: server.region,
    });
    const other = openBucket({ address, credentials: () => server.credentials, reach: 'private' });
    await expect(Array.fromAsync(other.list())).rejects.toMatchObject({ code: 'not_found' });
    await expect(other.put('x', each([Buffer.from('x')]))).rejects.toMatchObject({
      code: 'not_found',
      details: { s3Code: 'NoSuchBucket' },
    });
    other.close();
  });

  it('refuses wrong credentials, and says none of them', async () => {
    const secretKey = 'canary-secret-key';
    const other = open({ credentials: () => ({ ...server.credentials, secretKey }) });
    const failure = (await other
      .put('x', each([Buffer.from('x')]))
      .catch((error: unknown) => error)) as Error;
    expect(failure).toMatchObject({ code: 'permission_denied' });
    expect(JSON.stringify(failure) + failure.message + String(failure.cause)).not.toContain(secretKey);
  });

  it('lists page by page, by prefix and with a delimiter', async () => {
    const other = open({ prefix: 'pages/', pageSize: 100 });
    const keys = Array.from({ length: 303 }, (_, index) => `d${index % 3}/${String(index).padStart(5, '0')}`);
    await inParallel(keys, (key) => other.put(key, each([Buffer.from(key)])));
    const found = await Array.fromAsync(other.list());
    expect(found.map(({ key }) => key)).toEqual(keys.toSorted());
    expect(await Array.fromAsync(other.list('d1/'))).toHaveLength(101);
    const folders = await Array.fromAsync(other.list('', { delimiter: '/' }));
    expect(folders.map(({ key }) => key)).toEqual(['d0/', 'd1/', 'd2/']);
    await other.remove(keys);
    expect(await Array.fromAsync(other.list())).toEqual([]);
  });

  it('puts only where nothing is, if it is told so', async () => {
    await bucket.remove(['once']);
    await bucket.put('once', each([Buffer.from('1')]), { ifAbsent: true });
    await expect(bucket.put('once', each([Buffer.from('2')]), { ifAbsent: true })).rejects.toMatchObject({
      code: 'conflict',
    });
    expect((await read(bucket, 'once')).toString()).toBe('1');
  });

  // Where moto checks signatures, it takes none in an address.
  it.skipIf(server.program === 'moto')(
    'signs addresses that work without credentials, and no longer than they say',
    async () => {
      await bucket.remove(['signed key']);
      const put = await bucket.presign('PUT', 'signed key', 60);
      expect((await fetch(put, { method: 'PUT', body: 'by address' })).status).toBe(200);
      expect(await (await fetch(await bucket.presign('GET', 'signed key', 60))).text()).toBe('by address');
      const forged = (await bucket.presign('GET', 'signed key', 60)).replace('signed', 'other');
      expect((await fetch(forged)).ok).toBe(false);
    },
  );

  it.each([500, 502, 503, 429])('goes on after answers of %d', async (status) => {
    proxy.fault = (_request, number) => (number % 2 === 1 ? { do: 'answer', status } : undefined);
    const content = randomBytes(17 * MiB);
    await bucket.put('retried', pieces(content, MiB));
    expect(hash(await read(bucket, 'retried'))).toBe(hash(content));
  });

  it('slows down when it is asked to', async () => {
    const body = '<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>';
    proxy.fault = (_request, number) =>
      number === 1 ? { do: 'answer', status: 503, body, headers: { 'retry-after': '1' } } : undefined;
    const from = performance.now();
    await bucket.put('slow', each([Buffer.from('x')]));
    expect(performance.now() - from).toBeGreaterThan(990);
  });

  it('goes on where a download was cut, and does not ask for the rest twice', async () => {
    const content = randomBytes(18 * MiB);
    await bucket.put('cut', pieces(content, MiB));
    proxy.seen.length = 0;
    proxy.fault = ({ method }, number) =>
      method === 'GET' && number < 6 ? { do: 'cut', afterBytes: 5 * MiB } : undefined;
    expect(hash(await read(bucket, 'cut'))).toBe(hash(content));
  });

  it('gives up a server that is silent, in the head and in the body', async () => {
    await bucket.put('silent', each([randomBytes(MiB)]));
    const impatient = open({ stallMs: 150, attempts: 2 });
    proxy.fault = () => ({ do: 'hang' });
    await expect(read(impatient, 'silent')).rejects.toMatchObject({ code: 'unavailable' });
    proxy.fault = ({ method }) => (method === 'GET' ? { do: 'stall', afterBytes: 0 } : undefined);
    await expect(read(impatient, 'silent')).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('does not take a slow reader for a silent server', async () => {
    await bucket.put('slow reader', each([randomBytes(2 * MiB)]));
    const impatient = open({ stallMs: 100, attempts: 1 });
    let bytes = 0;
    for await (const chunk of impatient.get('slow reader')) {
      if (bytes === 0) await new Promise((resolve) => setTimeout(resolve, 400));
      bytes += chunk.length;
    }
    expect(bytes).toBe(2 * MiB);
  });

  it('notices bytes that were changed on the way, in both directions', async () => {
    await bucket.put('changed', each([randomBytes(1000)]));
    proxy.fault = ({ method }) => (method === 'GET' ? { do: 'damage' } : undefined);
    await expect(read(bucket, 'changed')).rejects.toMatchObject({
      code: 'unavailable',
      details: { damaged: true },
    });
    let damaged = 0;
    proxy.fault = ({ method }) =>
      method === 'PUT' && damaged++ === 0 ? { do: 'damage request' } : undefined;
    const sent = randomBytes(1000);
    // moto does not look at digests.
    if (server.program === 'versitygw') {
      await bucket.put('changed', each([sent]));
      expect(damaged).toBe(2);
      proxy.fault = () => undefined;
      expect((await read(bucket, 'changed')).equals(sent)).toBe(true);
    }
    proxy.fault = ({ method }) => (method === 'GET' ? { do: 'damage' } : undefined);
    await bucket.put('changed in parts', pieces(randomBytes(17 * MiB), MiB));
    const whole = proxy.seen.length;
    if (server.program === 'versitygw' || (await hasChecksum(bucket)))
      await expect(read(bucket, 'changed in parts')).rejects.toMatchObject({ details: { damaged: true } });
    expect(proxy.seen.length).toBeGreaterThan(whole);
  });

  it('leaves nothing of an upload that fails', async () => {
    const failing = async function* () {
      for (let index = 0; index < 20; index++) yield randomBytes(MiB);
      throw new Error('the source broke');
    };
    await bucket.remove(['broken']);
    await expect(bucket.put('broken', failing())).rejects.toThrow('the source broke');
    const refuse = open({ attempts: 2 });
    proxy.fault = ({ url }) => (url.includes('partNumber=2') ? { do: 'answer', status: 500 } : undefined);
    await expect(refuse.put('broken', pieces(randomBytes(30 * MiB), MiB))).rejects.toMatchObject({
      code: 'unavailable',
    });
    proxy.fault = () => undefined;
    expect(await bucket.head('broken')).toBeUndefined();
    expect(await Array.fromAsync(bucket.uploads())).toEqual([]);
  });

  it('finishes an upload whose last answer was lost', async () => {
    proxy.fault = ({ method, url }) =>
      method === 'POST' && url.includes('uploadId=') && !lost
        ? ((lost = true), { do: 'lose', status: 500 })
        : undefined;
    let lost = false;
    const content = randomBytes(9 * MiB);
    await bucket.put('lost', pieces(content, MiB));
    proxy.fault = () => undefined;
    expect(hash(await read(bucket, 'lost'))).toBe(hash(content));
  });

  it('stops when it is told to', async () => {
    const controller = new AbortController();
    const endless = async function* () {
      for (let index = 0; ; index++) {
        if (index === 30) controller.abort(new Error('enough'));
        yield randomBytes(MiB);
      }
    };
    await expect(bucket.put('endless', endless(), { signal: controller.signal })).rejects.toThrow('enough');
    expect(await Array.fromAsync(bucket.uploads())).toEqual([]);
    await bucket.put('read', pieces(randomBytes(20 * MiB), MiB));
    for await (const chunk of bucket.get('read')) {
      expect(chunk.length).toBeGreaterThan(0);
      break;
    }
  });

  it('rejects a content that is not as long as announced', async () => {
    await expect(bucket.put('short', each([Buffer.from('abc')]), { sizeBytes: 4 })).rejects.toMatchObject({
      code: 'conflict',
    });
    expect(await bucket.head('short')).toBeUndefined();
  });

  it('rejects an object that was replaced since it was listed', async () => {
    await bucket.put('replaced', each([Buffer.from('old')]));
    const [object] = await Array.fromAsync(bucket.list('replaced'));
    await bucket.put('replaced', each([Buffer.from('new')]));
    await expect(Array.fromAsync(bucket.get('replaced', { object: object! }))).rejects.toMatchObject({
      code: 'conflict',
    });
  });

  it('goes to no private address unless that is allowed, and follows no redirect', async () => {
    for (const endpoint of [
      'http://127.0.0.1:1',
      'http://[::1]:1',
      'http://10.1.2.3',
      'http://localhost:1',
    ]) {
      const address = bucketAddress({ bucket: 'any', endpoint });
      const one = openBucket({
        address,
        credentials: () => server.credentials,
        reach: 'public',
        attempts: 1,
      });
      await expect(one.head('x')).rejects.toMatchObject({ code: 'permission_denied' });
      one.close();
    }
    const metadata = bucketAddress({ bucket: 'any', endpoint: 'http://169.254.169.254' });
    const one = openBucket({ address: metadata, credentials: () => server.credentials, reach: 'private' });
    await expect(one.head('x')).rejects.toMatchObject({ code: 'permission_denied' });
    one.close();
    const before = proxy.seen.length;
    proxy.fault = () => ({ do: 'answer', status: 307, headers: { location: `${proxy.endpoint}/elsewhere` } });
    await expect(bucket.put('x', each([Buffer.from('x')]))).rejects.toMatchObject({
      code: 'failed_precondition',
    });
    expect(proxy.seen.length).toBe(before + 1);
  });

  it('does not go on for ever with a server that says that there is more', async () => {
    proxy.fault = (_request, number) => ({
      do: 'answer',
      status: 200,
      body: `<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>${number}</NextContinuationToken></ListBucketResult>`,
    });
    await expect(Array.fromAsync(bucket.list())).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('takes whatever a hostile server answers', async () => {
    const bodies = [
      '<',
      '<a>',
      '<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>',
      '\0',
      'x'.repeat(1e6),
    ];
    for (const body of bodies) {
      proxy.fault = () => ({ do: 'answer', status: 200, body });
      await Array.fromAsync(bucket.list()).catch((error: unknown) =>
        expect(error).toMatchObject({ name: 'CayError' }),
      );
      await expect(bucket.put('x', pieces(randomBytes(9 * MiB), MiB))).rejects.toMatchObject({
        name: 'CayError',
      });
    }
  });

  async function hasChecksum(of: Bucket): Promise<boolean> {
    const answer = await fetch(await of.presign('GET', 'changed in parts', 60));
    await answer.body?.cancel();
    return answer.headers.get('x-amz-checksum-crc32') !== null;
  }
});

it('signs an address as the documentation of AWS does', () => {
  const signed = presignV4({
    method: 'GET',
    authority: 'examplebucket.s3.amazonaws.com',
    target: '/test.txt',
    region: 'us-east-1',
    service: 's3',
    accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
    secretKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
    now: new Date('2013-05-24T00:00:00Z'),
    expiresSeconds: 86_400,
  });
  expect(new URLSearchParams(signed.slice(signed.indexOf('?'))).get('X-Amz-Signature')).toBe(
    'aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404',
  );
});

async function* each(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

async function* pieces(content: Buffer, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.length; at += size) yield content.subarray(at, at + size);
}

async function read(bucket: Bucket, key: string): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(bucket.get(key)));
}

function hash(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const queue = [...items];
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let item = queue.pop(); item !== undefined; item = queue.pop()) await work(item);
    }),
  );
}
