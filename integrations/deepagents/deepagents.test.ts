import { LocalShellBackend } from 'deepagents';
import { mkdtemp, rm } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { CayBackend } from './index.ts';

describe('the backend of deepagents', () => {
  let server: LiveServer;
  let backend: CayBackend;
  let root: string;
  beforeAll(async () => {
    server = await liveServer({ CAY_RUNTIME: 'runc' });
    backend = await CayBackend.create({}, { url: server.url, apiKey: server.apiKey });
    root = await mkdtemp('/tmp/cay-deepagents-');
  });
  afterAll(async () => {
    await backend?.close();
    await server?.[Symbol.asyncDispose]();
    await rm(root, { recursive: true, force: true });
  });

  it('answers as the local backend of deepagents does', async () => {
    const local = new LocalShellBackend({ rootDir: root, virtualMode: false, inheritEnv: true });
    await local.initialize?.();
    for (const command of ['echo out', 'echo a; exit 3', 'printf "a b" | wc -c', 'false']) {
      const { output: wanted, exitCode } = await local.execute(command);
      const { output, exitCode: got } = await backend.execute(command);
      expect(got, command).toBe(exitCode);
      expect(wanted, command).toContain(output.trim());
    }
    for (const [one, at] of [
      [local, root],
      [backend, '/home/user'],
    ] as const) {
      await one.write(`${at}/d/a.txt`, 'one\ntwo\n');
      expect((await one.edit(`${at}/d/a.txt`, 'two', 'three')).error).toBeFalsy();
      expect(String((await one.read(`${at}/d/a.txt`)).content)).toContain('three');
      expect(JSON.stringify(await one.grep('three', at))).toContain('a.txt');
      expect(JSON.stringify(await one.ls(`${at}/d`))).toContain('a.txt');
      expect(JSON.stringify(await one.glob('**/*.txt', at))).toContain('a.txt');
    }
  });

  it('moves files with an error for each, and forks', async () => {
    const bytes = new Uint8Array([0, 255, 1]);
    expect(
      await backend.uploadFiles([
        ['/home/user/x/b', bytes],
        ['/etc/shadow', bytes],
      ]),
    ).toEqual([
      { path: '/home/user/x/b', error: null },
      { path: '/etc/shadow', error: 'permission_denied' },
    ]);
    const [file, missing, directory] = await backend.downloadFiles([
      '/home/user/x/b',
      '/none',
      '/home/user/x',
    ]);
    expect(file).toEqual({ path: '/home/user/x/b', content: bytes, error: null });
    expect(missing).toMatchObject({ content: null, error: 'file_not_found' });
    expect(directory).toMatchObject({ content: null, error: 'is_directory' });
    const child = await backend.fork();
    await child.execute('echo child > who');
    expect((await backend.execute('cat who')).exitCode).not.toBe(0);
    await child.close();
  });
});
