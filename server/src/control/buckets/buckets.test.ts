/**
 * Buckets of projects, with the memory backend and an S3 server that is not ours behind a proxy that breaks
 * things.
 */
import { CopySchema, CreateBucketSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startFaultyProxy } from '../../../../test/support/faulty-proxy.ts';
import { startS3Server } from '../../../../test/support/s3-server.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { bucketAddress } from '../../s3/bucket-address.ts';
import type { Bucket } from '../../s3/bucket.ts';
import { openBucket } from '../../s3/open-bucket.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type TestControl,
} from '../testing/test-control.ts';

const CANARY = 'canary-of-the-wrong-key';
const server = await startS3Server();
if ('why' in server) {
  it.skip(`buckets of projects: no S3 server: ${server.why}`, () => {});
} else {
  const proxy = await startFaultyProxy(server.endpoint);
  const endpoints = [new URL(proxy.endpoint).host];
  let place: Installation;
  let backend: ReturnType<typeof memoryBackend>;
  let test: TestControl;
  let bucket: Bucket;
  let number = 0;

  const open = () => place.open(backend, { bucketEndpoints: endpoints });
  const add = (more: object = {}) =>
    test.control.buckets.create(
      test.principal,
      CreateBucketSchema.parse({
        name: 'data',
        bucket: server.bucket,
        prefix: `case-${number}`,
        endpoint: proxy.endpoint,
        accessKeyId: server.credentials.accessKeyId,
        secret: 's3-key',
        ...more,
      }),
    );
  const put = (key: string, text: string) =>
    bucket.put(
      key,
      (async function* () {
        yield Buffer.from(text);
      })(),
    );
  const object = async (key: string) => Buffer.concat(await Array.fromAsync(bucket.get(key))).toString();
  const keys = async () => (await Array.fromAsync(bucket.list())).map(({ key }) => key);
  const files = async (id: SandboxId) => (await test.control.enter(test.principal, id)).guest.files('user');
  const write = async (id: SandboxId, path: string, text: string) =>
    (await files(id)).write(path, Buffer.from(text));
  const read = async (id: SandboxId, path: string) =>
    Buffer.concat(await Array.fromAsync((await (await files(id)).read(path)).data)).toString();
  const create = async (sync: object = {}) =>
    (
      await test.control.create(
        test.principal,
        asked({ buckets: [{ bucket: 'data', path: '/home/user/data', ...sync }] }),
      )
    ).sandbox.id;
  const states = async (id: string) => (await test.control.buckets.syncs(test.principal, id)).buckets;
  const copy = (sandbox: string, path: string, more: object = {}) =>
    CopySchema.parse({ sandbox, path, ...more });

  beforeEach(async () => {
    number++;
    place = installation();
    backend = memoryBackend();
    test = await open();
    await test.control.secrets.set(test.principal, 's3-key', server.credentials.secretKey);
    const address = bucketAddress({
      bucket: server.bucket,
      prefix: `case-${number}`,
      endpoint: server.endpoint,
    });
    bucket = openBucket({ address, credentials: () => server.credentials, reach: 'private' });
  });
  afterEach(async () => {
    armFaultPoints();
    proxy.fault = () => undefined;
    await test.control.close();
    bucket.close();
    place.remove();
  });
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  describe('a bucket of a project', () => {
    it('is asked for before it has a name, and its credentials are shown to nobody', async () => {
      await test.control.secrets.set(test.principal, 'wrong', CANARY);
      const failure = (await add({ secret: 'wrong' }).catch((error: unknown) => error)) as Error;
      expect(failure).toMatchObject({ code: 'permission_denied' });
      expect(failure.message + JSON.stringify(failure)).not.toContain(CANARY);
      await expect(add({ secret: 'absent' })).rejects.toMatchObject({ code: 'failed_precondition' });
      expect(await test.control.buckets.list(test.principal)).toEqual([]);
      const made = await add();
      expect(JSON.stringify(made)).not.toContain(server.credentials.secretKey);
      await expect(add()).rejects.toMatchObject({ code: 'already_exists' });
      const events = JSON.stringify(test.sql('SELECT * FROM buckets'));
      expect(events).not.toContain(server.credentials.secretKey);
    });

    it.each([
      'http://127.0.0.1:9',
      'https://127.0.0.1:9',
      'https://localhost',
      'https://10.0.0.1',
      'https://[::1]',
      'https://169.254.169.254',
      'https://[fd00:ec2::254]',
      'http://example.com',
    ])('is not at %s unless the operator names that', async (endpoint) => {
      await expect(add({ endpoint })).rejects.toMatchObject({ code: 'permission_denied' });
    });

    it('belongs to its project, and counts in its quota', async () => {
      await add();
      const other = await test.projects.create('other');
      const stranger = { ...test.principal, project: other.id };
      await expect(test.control.buckets.get(stranger, 'data')).rejects.toMatchObject({ code: 'not_found' });
      const request = asked({ buckets: [{ bucket: 'data', path: '/d' }] });
      await expect(test.control.create(stranger, request)).rejects.toMatchObject({ code: 'not_found' });
      await test.control.projects.update(test.principal, test.principal.project, { quota: { buckets: 1 } });
      await expect(add({ name: 'more' })).rejects.toMatchObject({ code: 'resource_exhausted' });
    });

    it('gives and takes files when it is asked to', async () => {
      await add();
      await put('in/a', 'A');
      await put('in/deep/b', 'B');
      await put('else', 'E');
      const { id } = (await test.control.create(test.principal, asked())).sandbox;
      expect(
        await test.control.buckets.import(
          test.principal,
          'data',
          copy(id, '/home/user/in', { prefix: 'in' }),
        ),
      ).toEqual({ files: 2, bytes: 2, removed: 0, skipped: 0 });
      expect(await read(id, '/home/user/in/deep/b')).toBe('B');
      await write(id, '/home/user/in/new', 'N');
      await (await files(id)).symlink('/home/user/in/link', '/etc/passwd');
      const done = await test.control.buckets.export(
        test.principal,
        'data',
        copy(id, '/home/user/in', { prefix: 'out' }),
      );
      expect(done).toMatchObject({ files: 3, skipped: 1 });
      expect(await keys()).toEqual(['else', 'in/a', 'in/deep/b', 'out/a', 'out/deep/b', 'out/new']);
      const listed = await test.control.buckets.objects(test.principal, 'data', {
        prefix: '',
        recursive: false,
        limit: 10,
      });
      expect(listed.objects.map(({ key }) => key)).toEqual(['else', 'in/', 'out/']);
    });

    it('that is read-only is never written', async () => {
      await add({ readOnly: true });
      const { id } = (await test.control.create(test.principal, asked())).sandbox;
      const denied = { code: 'failed_precondition' };
      await expect(
        test.control.buckets.export(test.principal, 'data', copy(id, '/home/user')),
      ).rejects.toMatchObject(denied);
      const put = { key: 'x', method: 'PUT', expiresSeconds: 60 } as const;
      await expect(test.control.buckets.sign(test.principal, 'data', put)).rejects.toMatchObject(denied);
    });

    it('reports what fails on the way, and gives no damaged file for a whole one', async () => {
      await add();
      await put('a', 'content');
      const { id } = (await test.control.create(test.principal, asked())).sandbox;
      proxy.fault = ({ method, url }) =>
        method === 'GET' && url.endsWith('/a') ? { do: 'damage' } : undefined;
      await expect(
        test.control.buckets.import(test.principal, 'data', copy(id, '/home/user/in')),
      ).rejects.toMatchObject({ code: 'unavailable', details: { damaged: true } });
      await expect(read(id, '/home/user/in/a')).rejects.toMatchObject({ code: 'not_found' });
    });
  });

  describe('a copy of a bucket in a sandbox', () => {
    it('comes before the sandbox is there, and goes at turns, stops and removals', async () => {
      await add();
      await put('kept', '1');
      await put('changed', '1');
      const id = await create();
      expect(await read(id, '/home/user/data/kept')).toBe('1');
      expect(await states(id)).toMatchObject([{ files: 2, pending: true, error: null }]);
      await write(id, '/home/user/data/changed', 'two');
      await write(id, '/home/user/data/sub/new', 'new');
      proxy.seen.length = 0;
      await test.control.turn(test.principal, id, {});
      expect(proxy.seen.filter((line) => line.startsWith('PUT'))).toHaveLength(2);
      expect(await object('changed')).toBe('two');
      await write(id, '/home/user/data/changed', 'three');
      await test.control.stop(test.principal, id);
      expect(await object('changed')).toBe('three');
      expect(await states(id)).toMatchObject([{ pending: false, files: 3 }]);
      await put('later', 'L');
      await test.control.start(test.principal, id);
      expect(await read(id, '/home/user/data/later')).toBe('L');
      await write(id, '/home/user/data/last', 'at the end');
      await test.control.remove(test.principal, id);
      expect(await object('last')).toBe('at the end');
    });

    it('of a paused sandbox is written before that is removed', async () => {
      await add();
      const id = await create();
      await write(id, '/home/user/data/x', 'paused');
      await test.control.pause(test.principal, id, { as: 'frozen' });
      await test.control.remove(test.principal, id);
      expect(await object('x')).toBe('paused');
    });

    it('that cannot be read makes no sandbox', async () => {
      await add();
      await put('odd\u0001name', 'x');
      await expect(create()).rejects.toMatchObject({ code: 'failed_precondition' });
      expect((await test.control.list(test.principal, { limit: 10 })).sandboxes).toEqual([]);
    });

    it('that cannot be written keeps the sandbox, with the error, until it is detached', async () => {
      await add();
      const id = await create();
      await write(id, '/home/user/data/x', 'precious');
      const body = '<Error><Code>AccessDenied</Code></Error>';
      proxy.fault = ({ method }) => (method === 'PUT' ? { do: 'answer', status: 403, body } : undefined);
      await expect(test.control.turn(test.principal, id, {})).rejects.toMatchObject({
        code: 'permission_denied',
      });
      await expect(test.control.stop(test.principal, id)).rejects.toMatchObject({
        code: 'permission_denied',
      });
      await expect(test.control.remove(test.principal, id)).rejects.toMatchObject({
        code: 'permission_denied',
      });
      expect(await states(id)).toMatchObject([
        { pending: true, error: expect.stringContaining('AccessDenied') },
      ]);
      expect(await read(id, '/home/user/data/x')).toBe('precious');
      expect((await test.control.get(test.principal, id)).state).toBe('active');
      await test.control.buckets.detach(test.principal, id, '/home/user/data');
      await test.control.remove(test.principal, id);
      await expect(test.control.get(test.principal, id)).rejects.toMatchObject({ code: 'not_found' });
    });

    it('fails on a conflict, or lets the side win that was named', async () => {
      await add();
      await put('x', 'old');
      const id = await create();
      const winner = await create({ onConflict: 'sandbox' });
      await write(id, '/home/user/data/x', 'of the sandbox');
      await write(winner, '/home/user/data/x', 'of the winner');
      await put('x', 'of the bucket');
      await expect(test.control.stop(test.principal, id)).rejects.toMatchObject({ code: 'conflict' });
      await test.control.stop(test.principal, winner);
      expect(await object('x')).toBe('of the winner');
    });

    it('removes what was removed, if that was asked for', async () => {
      await add();
      await put('gone', 'x');
      await put('stays', 'x');
      const careful = await create();
      const id = await create({ deletions: true });
      await (await files(careful)).remove('/home/user/data/stays');
      await (await files(id)).remove('/home/user/data/gone');
      await test.control.buckets.sync(test.principal, careful);
      await test.control.buckets.sync(test.principal, id);
      expect(await keys()).toEqual(['stays']);
    });

    it('is written by the next server, if the last one was killed before', async () => {
      await add();
      const id = await create();
      await write(id, '/home/user/data/x', 'unsaved');
      const reached = new Promise<void>((resolve) => {
        armFaultPoints({
          'control.bucket.copied': () => {
            resolve();
            return new Promise<void>(() => {});
          },
        });
      });
      test.control.remove(test.principal, id).catch(() => {});
      await reached;
      await test.kill();
      armFaultPoints();
      test = await open();
      expect(await states(id)).toMatchObject([{ pending: true }]);
      await test.control.remove(test.principal, id);
      expect(await object('x')).toBe('unsaved');
      await expect(test.control.get(test.principal, id)).rejects.toMatchObject({ code: 'not_found' });
    });

    it('is not for a sandbox whose own command would start before', async () => {
      await add();
      const buckets = [{ bucket: 'data', path: '/d' }];
      await expect(
        test.control.create(test.principal, asked({ cmd: ['sleep', '1'], buckets })),
      ).rejects.toMatchObject({ code: 'invalid_argument' });
    });
  });
}
