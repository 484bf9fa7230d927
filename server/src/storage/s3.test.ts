import { randomBytes } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { storeSuite } from '../../../test/conformance/store-suite.ts';
import { startFaultyProxy } from '../../../test/support/faulty-proxy.ts';
import { startS3Server } from '../../../test/support/s3-server.ts';
import { sealedBox } from '../lib/sealed-box.ts';
import { bucketAddress } from '../s3/bucket-address.ts';
import { openBucket } from '../s3/open-bucket.ts';
import { openS3Store } from './s3.ts';
import { sealedStore } from './sealed-store.ts';

const server = await startS3Server();
if ('why' in server) {
  it.skip(`s3 store: no S3 server: ${server.why}`, () => {});
} else {
  const proxy = await startFaultyProxy(server.endpoint);
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });
  const bucketAt = (prefix: string) =>
    openBucket({
      address: bucketAddress({ bucket: server.bucket, prefix, endpoint: proxy.endpoint }),
      credentials: () => server.credentials,
      reach: 'private',
      pauseMs: 5,
    });

  storeSuite('s3', { open: () => openS3Store({ bucket: bucketAt('suite') }) });
  const box = sealedBox(randomBytes(32));
  storeSuite('s3, sealed', {
    open: async () =>
      sealedStore(await openS3Store({ bucket: bucketAt('sealed') }), { box, alsoPlain: false }),
  });

  describe('s3 store', () => {
    it('takes back uploads that nobody finished, when they are old enough', async () => {
      const bucket = bucketAt('swept');
      const held = Promise.withResolvers<void>();
      const putting = bucket.put(
        'half',
        (async function* () {
          for (let index = 0; index < 9; index++) yield Buffer.alloc(1024 * 1024);
          await held.promise;
        })(),
      );
      putting.catch(() => {});
      const uploads = async () => (await Array.fromAsync(bucket.uploads())).length;
      await expect.poll(uploads).toBe(1);
      if (server.program !== 'moto') {
        // Of moto every upload was begun in 2010.
        await (await openS3Store({ bucket: bucketAt('swept') })).close();
        expect(await uploads()).toBe(1);
      }
      await (await openS3Store({ bucket: bucketAt('swept'), abandonedMs: -60_000 })).close();
      expect(await uploads()).toBe(0);
      held.resolve();
      await expect(putting).rejects.toThrow();
      bucket.close();
    });

    it('does not open where there is no bucket, and says which', async () => {
      const address = bucketAddress({ bucket: 'no-such-bucket', endpoint: proxy.endpoint });
      const bucket = openBucket({ address, credentials: () => server.credentials, reach: 'private' });
      await expect(openS3Store({ bucket })).rejects.toMatchObject({
        code: 'not_found',
        message: expect.stringContaining('no-such-bucket'),
      });
      bucket.close();
    });

    it('goes on through answers of 503 and cut connections', async () => {
      const store = sealedStore(await openS3Store({ bucket: bucketAt('faults') }), { box, alsoPlain: false });
      const content = randomBytes(20 * 1024 * 1024);
      proxy.seen.length = 0;
      proxy.fault = ({ method }, number) =>
        number % 3 === 0
          ? { do: 'answer', status: 503 }
          : number % 5 === 0 && method === 'GET'
            ? { do: 'cut', afterBytes: 100_000 }
            : undefined;
      await store.put(
        'big',
        (async function* () {
          yield content;
        })(),
      );
      expect(Buffer.concat(await Array.fromAsync(store.get('big'))).equals(content)).toBe(true);
      proxy.fault = () => undefined;
      await store.remove('big');
      await store.close();
    });
  });
}
