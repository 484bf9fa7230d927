/** Buckets as users have them: archives in one, woken on another machine, and files of sandboxes. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { bucketAddress } from '../../server/src/s3/bucket-address.ts';
import { openBucket } from '../../server/src/s3/open-bucket.ts';
import { openCay, type Cay } from '../support/cay.ts';
import { startS3Server } from '../support/s3-server.ts';

const server = await startS3Server();
const root = process.getuid?.() === 0;
if ('why' in server) {
  it.skip(`buckets: no S3 server: ${server.why}`, () => {});
} else if (!root) {
  it.skip('buckets: the local backend needs root', () => {});
} else {
  const { endpoint, bucket: name, credentials } = server;
  const { accessKeyId, secretKey } = credentials;
  const store = `s3://${name}/archives?endpoint=${endpoint}`;
  const secretEnv = {
    CAY_STORE_ACCESS_KEY_ID: accessKeyId,
    CAY_STORE_SECRET_KEY: secretKey,
    CAY_SECRET_KEY: randomBytes(32).toString('base64'),
  };
  const bucketAt = (prefix: string) =>
    openBucket({
      address: bucketAddress({ bucket: name, prefix, endpoint }),
      credentials: () => credentials,
      reach: 'private',
    });
  afterAll(() => server.stop());

  async function ok(cay: Cay, ...args: Parameters<Cay['run']>): Promise<string> {
    const { code, stdout, stderr } = await cay.run(...args);
    expect(code, `${args.filter((part) => typeof part === 'string').join(' ')}: ${stderr}`).toBe(0);
    return stdout;
  }

  describe('a store in a bucket', () => {
    it('has sandboxes that wake on another machine', async () => {
      const archives = bucketAt('archives');
      await using one = await openCay({ ...secretEnv, CAY_STORE: store });
      const backup = join(one.dataDir, 'records.bak');
      await ok(one, 'up', '--detach');
      // Nobody who looks at the processes sees a credential.
      expect(readFileSync('/proc/self/cmdline', 'utf8')).not.toContain(secretKey);
      const { pid } = await one.json<{ pid: number }>('status');
      expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain(secretKey);
      await ok(one, 'create', '--name', 'traveller');
      await ok(one, 'exec', 'traveller', '--', 'sh', '-c', 'echo canary-4711 > /home/user/kept');
      await ok(one, 'pause', 'traveller', '--as', 'archived');
      const objects = await Array.fromAsync(archives.list());
      expect(objects).toHaveLength(1);
      const content = Buffer.concat(await Array.fromAsync(archives.get(objects[0]!.key)));
      expect(content.includes('canary-4711')).toBe(false);
      await ok(one, 'backup', backup);
      await ok(one, 'down');

      await using other = await openCay({ ...secretEnv, CAY_STORE: store });
      await ok(other, 'up', '--detach', '--restore', backup);
      expect(await ok(other, 'exec', 'traveller', '--', 'cat', '/home/user/kept')).toBe('canary-4711\n');
      // It is in one place.
      expect(await Array.fromAsync(archives.list())).toEqual([]);
      archives.close();
    }, 180_000);

    it('keeps the server from starting where there are no credentials, or wrong ones, and shows none', async () => {
      await using cay = await openCay({ CAY_STORE: store, CAY_BACKEND: 'memory' });
      const without = await cay.run('up', '--detach');
      expect(without.code).not.toBe(0);
      expect(without.stderr).toContain('CAY_STORE_ACCESS_KEY_ID');
      const env = { CAY_STORE_ACCESS_KEY_ID: accessKeyId, CAY_STORE_SECRET_KEY: 'canary-wrong-key' };
      const wrong = await cay.run('up', '--detach', { env });
      expect(wrong.code).not.toBe(0);
      expect(wrong.stderr).toMatch(/Cannot open the store s3:\/\/|SignatureDoesNotMatch/);
      expect(wrong.stdout + wrong.stderr).not.toContain('canary-wrong-key');
    }, 120_000);
  });

  describe('a bucket of a project', () => {
    it('has files for sandboxes, and gets what they make of them', async () => {
      const data = bucketAt('project');
      const put = (key: string, text: string) =>
        data.put(
          key,
          (async function* () {
            yield Buffer.from(text);
          })(),
        );
      await put('input/numbers.txt', '1\n2\n3\n');
      await using cay = await openCay({ CAY_ALLOW_BUCKET_ENDPOINT: new URL(endpoint).host });
      await ok(cay, 'up', '--detach');
      await ok(cay, 'secret', 'set', 's3-key', { input: secretKey });
      const address = [`s3://${name}/project`, '--endpoint', endpoint];
      const keys = ['--access-key-id', accessKeyId, '--secret', 's3-key'];
      await ok(cay, 'bucket', 'add', 'data', ...address, ...keys);
      expect(await ok(cay, 'bucket', 'ls', 'data')).toContain('input/');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/home/user/data');
      const sum = 'cd data && awk "{ s += \\$1 } END { print s }" input/numbers.txt > sum.txt && env';
      const environment = await ok(cay, 'exec', 'box', '--', 'sh', '-c', sum);
      expect(environment).not.toContain(secretKey);
      await ok(cay, 'turn', 'box');
      expect(Buffer.concat(await Array.fromAsync(data.get('sum.txt'))).toString()).toBe('6\n');
      expect(await ok(cay, 'bucket', 'status', 'box')).toContain('/home/user/data');
      await ok(
        cay,
        'exec',
        'box',
        '--',
        'sh',
        '-c',
        'head -c 20000000 /dev/urandom > data/large; sha256sum < data/large > data/digest',
      );
      await ok(cay, 'rm', 'box');
      const { createHash } = await import('node:crypto');
      const hash = createHash('sha256');
      for await (const chunk of data.get('large')) hash.update(chunk);
      const digest = Buffer.concat(await Array.fromAsync(data.get('digest'))).toString();
      expect(digest).toContain(hash.digest('hex'));
      await ok(cay, 'create', '--name', 'next');
      expect(await ok(cay, 'bucket', 'import', 'data:input', 'next:/home/user/in')).toContain('1 file');
      expect(await ok(cay, 'bucket', 'export', 'next:/home/user/in', 'data:copy')).toContain('1 file');
      expect(await ok(cay, 'exec', 'next', '--', 'cat', '/home/user/in/numbers.txt')).toBe('1\n2\n3\n');
      expect((await data.head('copy/numbers.txt'))?.sizeBytes).toBe(6);
      data.close();
    }, 180_000);
  });
}
