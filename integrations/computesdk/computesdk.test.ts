import { afterAll, beforeAll, expect, it } from 'vitest';
import { visit } from '../../test/e2b/e2b-platform.ts';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { cay } from './index.ts';

let server: LiveServer;
beforeAll(async () => void (server = await liveServer({ CAY_RUNTIME: 'runc' })));
afterAll(() => server?.[Symbol.asyncDispose]());

it('is a provider of ComputeSDK, with snapshots on every runtime', async () => {
  const compute = cay({ url: server.url, apiKey: server.apiKey });
  const sandbox = await compute.sandbox.create({ envs: { WHO: 'me' }, metadata: { run: 1 } });
  expect(
    await sandbox.runCommand('echo "$WHO $MORE"; echo err >&2; exit 3', { env: { MORE: 'a"b' } }),
  ).toMatchObject({
    stdout: 'me a"b\n',
    stderr: 'err\n',
    exitCode: 3,
  });
  expect((await sandbox.runCommand('sleep 20', { timeout: 200 })).exitCode).not.toBe(0);
  const chunks: string[] = [];
  const live = 'echo one; sleep 0.3; echo two';
  await sandbox.runCommand(live, { onStdout: (chunk: string) => void chunks.push(chunk) });
  expect(chunks).toEqual(['one\n', 'two\n']);
  await sandbox.filesystem.mkdir('/home/user/d');
  await sandbox.filesystem.writeFile('/home/user/d/a.txt', 'hello');
  expect(await sandbox.filesystem.readFile('/home/user/d/a.txt')).toBe('hello');
  expect(await sandbox.filesystem.readdir('/home/user/d')).toMatchObject([
    { name: 'a.txt', type: 'file', size: 5 },
  ]);
  expect(await sandbox.getInfo()).toMatchObject({
    provider: 'cay',
    status: 'running',
    metadata: { run: '1' },
  });
  const { id } = await compute.snapshot!.create(sandbox.sandboxId, { name: 'kept' });
  expect(JSON.stringify(await compute.snapshot!.list())).toContain(id);
  const copy = await compute.sandbox.create({ snapshotId: id });
  expect(await copy.filesystem.readFile('/home/user/d/a.txt')).toBe('hello');
  expect((await compute.sandbox.list()).length).toBe(2);
  await sandbox.runCommand('python3 -m http.server 8000', { background: true });
  const url = await sandbox.getUrl({ port: 8000 });
  // Its host is one that no name service here knows.
  const { host } = new URL(url);
  await expect.poll(async () => (await visit(server.url, host)).status, { timeout: 10_000 }).toBe(200);
  await sandbox.filesystem.remove('/home/user/d');
  expect(await sandbox.filesystem.exists('/home/user/d')).toBe(false);
  await copy.destroy();
  await compute.snapshot!.delete(id);
  await sandbox.destroy();
  await sandbox.destroy();
  expect(await compute.sandbox.getById(sandbox.sandboxId)).toBeNull();
});
