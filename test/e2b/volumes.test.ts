/** E2B's volumes through its official client. */
import { Sandbox, Volume } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';

describe('volumes of an E2B client', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const access = (apiKey = server.alice) => ({
    apiKey,
    apiUrl: server.server.url,
    sandboxUrl: server.server.url,
  });

  it('are created, listed, mounted, and removed when no sandbox has them', async () => {
    const volume = await Volume.create('shared', access());
    expect(volume).toMatchObject({ name: 'shared', volumeId: expect.stringMatching(/^vol_/) });
    expect(volume.token.length).toBeGreaterThan(20);
    expect(await Volume.list(access())).toEqual([{ volumeId: volume.volumeId, name: 'shared' }]);
    expect((await Volume.getInfo(volume.volumeId, access())).name).toBe('shared');
    expect(await Volume.list(access(server.bob))).toEqual([]);

    const options = { ...access(), volumeMounts: { '/data': volume } };
    const [one, other] = [await Sandbox.create(options), await Sandbox.create(options)];
    await one.files.write('/data/note', 'hello');
    expect(await other.files.read('/data/note')).toBe('hello');
    await expect(Volume.destroy(volume.volumeId, access())).rejects.toThrow(/mounted/);
    await one.kill();
    await other.kill();
    expect(await Volume.destroy(volume.volumeId, access())).toBe(true);
    expect(await Volume.destroy(volume.volumeId, access())).toBe(false);
  });

  it('that do not exist are not mounted', async () => {
    await expect(
      Sandbox.create({ ...access(), volumeMounts: { '/data': 'nothing' } } as never),
    ).rejects.toThrow(/nothing/);
  });
});
