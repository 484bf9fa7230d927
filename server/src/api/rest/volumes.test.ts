import type { Volume } from '@cay/sdk/protocol';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

const MiB = 1024 * 1024;
let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());
afterEach(() => armFaultPoints());

let names = 0;
const create = async (body: object = {}, key = test.alice) => {
  const answer = await test.call('POST', '/v1/volumes', { body: { name: `v${++names}`, ...body }, key });
  expect(answer.status, answer.text).toBe(201);
  return answer.json as Volume;
};
const code = async (answer: ReturnType<TestServer['call']>) => (await answer).json?.error?.code;
const at = (volume: string, more: object = {}) => ({
  type: 'volume' as const,
  volume,
  path: '/data',
  ...more,
});

describe('volumes', () => {
  it('are created, listed, mounted by name, and removed when nobody has them', async () => {
    const volume = await create({ sizeBytes: 64 * MiB, labels: { kind: 'a' } });
    expect(volume).toMatchObject({ sizeBytes: 64 * MiB, readOnly: false, from: null, mountedBy: [] });
    const box = await test.create({ mounts: [at(volume.name)] });
    expect(box.mounts).toEqual([
      { type: 'volume', volume: volume.id, name: volume.name, path: '/data', readOnly: false },
    ]);
    const shown = (await test.call('GET', `/v1/volumes/${volume.name}`)).json as Volume;
    expect(shown.mountedBy).toEqual([{ sandbox: box.id, name: box.name, path: '/data', readOnly: false }]);
    const refused = await test.call('DELETE', `/v1/volumes/${volume.id}`);
    expect(refused.json.error).toMatchObject({
      code: 'failed_precondition',
      details: { sandboxes: [box.id] },
    });
    const { volumes } = (await test.call('GET', '/v1/volumes')).json as { volumes: Volume[] };
    expect(volumes.map(({ id }) => id)).toContain(volume.id);
    await test.call('DELETE', `/v1/sandboxes/${box.id}`);
    expect((await test.call('DELETE', `/v1/volumes/${volume.name}`)).status).toBe(204);
    expect((await test.call('DELETE', `/v1/volumes/${volume.name}`)).status).toBe(204);
    expect(await code(test.call('GET', `/v1/volumes/${volume.id}`))).toBe('not_found');
  });

  it('are shared by forks and left alone by rollbacks', async () => {
    const volume = await create();
    const { id } = await test.create({ mounts: [at(volume.name)] });
    const write = (box: string, path: string, text: string) =>
      test.call('PUT', `/v1/sandboxes/${box}/files?path=${path}`, { body: text });
    const read = async (box: string, path: string) =>
      (await test.call('GET', `/v1/sandboxes/${box}/files?path=${path}`)).text;
    await write(id, '/data/shared', 'one');
    const { id: snapshot } = (await test.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} })).json;
    await write(id, '/data/shared', 'two');
    const forked = (await test.call('POST', `/v1/sandboxes/${id}/fork`, { body: {} })).json;
    const child = forked.sandboxes[0];
    expect(child.mounts).toMatchObject([{ volume: volume.id, path: '/data' }]);
    await write(child.id, '/data/shared', 'of the child');
    const back = await test.call('POST', `/v1/sandboxes/${id}/rollback`, { body: { to: snapshot } });
    expect(back.json.sandbox.mounts).toMatchObject([{ volume: volume.id }]);
    expect(await read(id, '/data/shared')).toBe('of the child');
    const { mountedBy } = (await test.call('GET', `/v1/volumes/${volume.id}`)).json as Volume;
    expect(mountedBy.map(({ sandbox }) => sandbox).toSorted()).toEqual([id, child.id as string].toSorted());
  });

  it('are copied as snapshots and clones', async () => {
    const volume = await create();
    const box = await test.create({ mounts: [at(volume.id)] });
    await test.call('PUT', `/v1/sandboxes/${box.id}/files?path=/data/a`, { body: 'then' });
    const snapshot = await create({ from: volume.name, readOnly: true });
    expect(snapshot).toMatchObject({ readOnly: true, from: volume.id, sizeBytes: null, usedBytes: 4 });
    const clone = await create({ from: snapshot.name });
    expect(clone.readOnly).toBe(false);
    expect(await code(test.call('POST', '/v1/sandboxes', { body: { mounts: [at(snapshot.name)] } }))).toBe(
      'failed_precondition',
    );
    expect(await code(test.call('POST', '/v1/volumes', { body: { name: 'x', readOnly: true } }))).toBe(
      'invalid_argument',
    );
  });

  it('travel as archives', async () => {
    const volume = await create();
    const box = await test.create({ mounts: [at(volume.id)] });
    await test.call('PUT', `/v1/sandboxes/${box.id}/files?path=/data/a`, { body: 'packed' });
    const archive = await test.fetch(`/v1/volumes/${volume.id}/archive`);
    const imported = await test.fetch(`/v1/volumes/import?name=travelled`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-tar' },
      body: await archive.arrayBuffer(),
    });
    expect(imported.status).toBe(201);
    const other = await test.create({ mounts: [at('travelled')] });
    expect((await test.call('GET', `/v1/sandboxes/${other.id}/files?path=/data/a`)).text).toBe('packed');
  });

  it('of other projects do not exist', async () => {
    const volume = await create();
    for (const ref of [volume.id, volume.name]) {
      expect(await code(test.call('GET', `/v1/volumes/${ref}`, { key: test.bob }))).toBe('not_found');
      const body = { mounts: [at(ref)] };
      expect(await code(test.call('POST', '/v1/sandboxes', { body, key: test.bob }))).toBe('not_found');
      expect((await test.call('DELETE', `/v1/volumes/${ref}`, { key: test.bob })).status).toBe(204);
      const copy = { name: 'copy', from: ref };
      expect(await code(test.call('POST', '/v1/volumes', { body: copy, key: test.bob }))).toBe('not_found');
    }
    expect((await test.call('GET', `/v1/volumes/${volume.id}`)).status).toBe(200);
    await create({ name: volume.name }, test.bob);
  });

  it('are refused with names, mounts and paths that make no sense', async () => {
    const volume = await create();
    for (const name of ['', '-a', 'a b', 'vol_like', 'x'.repeat(64)])
      expect(await code(test.call('POST', '/v1/volumes', { body: { name } })), name).toBe('invalid_argument');
    expect(await code(test.call('POST', '/v1/volumes', { body: { name: volume.name } }))).toBe(
      'already_exists',
    );
    const mounts = [
      [at(volume.name, { path: '/' })],
      [at(volume.name, { path: 'data' })],
      [at(volume.name, { path: '/a/../b' })],
      [at(volume.name, { path: '/proc/x' })],
      [at(volume.name, { path: '/run' })],
      [at(volume.name, { path: '/run/cay/x' })],
      [at(volume.name, { subpath: '../x' })],
      [at(volume.name, { subpath: '/x' })],
      [at(volume.name), at(volume.name, { path: '/data/inner' })],
      [{ type: 'tmpfs', path: '/s', mode: '4777' }],
      [{ type: 'tmpfs', path: '/s', sizeBytes: 1 }],
      [{ type: 'bind', path: '/s' }],
    ];
    for (const each of mounts)
      expect(
        await code(test.call('POST', '/v1/sandboxes', { body: { mounts: each } })),
        JSON.stringify(each),
      ).toBe('invalid_argument');
    const { problems } = (await test.call('POST', '/v1/validate', { body: { mounts: [at('nothing')] } }))
      .json;
    expect(problems).toMatchObject([{ code: 'not_found', field: 'mounts', refused: true }]);
  });

  it('hold the quotas of their project', async () => {
    const { id: project } = (
      await test.call('POST', '/v1/projects', { key: test.admin, body: { name: 'small' } })
    ).json;
    const { secret } = (
      await test.call('POST', '/v1/keys', { key: test.admin, body: { name: 'small', project: 'small' } })
    ).json;
    const quota = { volumes: 2, volumeBytes: 100 * MiB };
    await test.call('PATCH', `/v1/projects/${project}`, { key: test.admin, body: { quota } });
    const make = (body: object) => test.call('POST', '/v1/volumes', { key: secret, body });
    expect(await code(make({ name: 'any', sizeBytes: null }))).toBe('invalid_argument');
    expect(await code(make({ name: 'much', sizeBytes: 101 * MiB }))).toBe('resource_exhausted');
    expect((await make({ name: 'one', sizeBytes: 60 * MiB })).status).toBe(201);
    expect(await code(make({ name: 'two', sizeBytes: 60 * MiB }))).toBe('resource_exhausted');
    expect((await make({ name: 'two', sizeBytes: 40 * MiB })).status).toBe(201);
    expect(await code(make({ name: 'three', sizeBytes: 16 * MiB }))).toBe('resource_exhausted');
    expect(await code(test.call('DELETE', `/v1/projects/${project}`, { key: test.admin }))).toBe(
      'failed_precondition',
    );
  });

  it.each(['control.volume.recorded', 'control.volume.made'])(
    'that fail at %s leave nothing',
    async (point) => {
      armFaultPoints({
        [point]: () => {
          throw new Error('the disk caught fire');
        },
      });
      const name = `fails-${++names}`;
      expect((await test.call('POST', '/v1/volumes', { body: { name } })).status).toBe(500);
      armFaultPoints();
      await create({ name });
    },
  );
});
