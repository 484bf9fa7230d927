import { bootstrapWorkspace, defineWorkspace, type SandboxHandle } from '@tanstack/ai-sandbox';
import { localProcessSandbox } from '@tanstack/ai-sandbox-local-process';
import { Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { visit } from '../../test/e2b/e2b-platform.ts';
import { liveServer, type LiveServer } from '../../test/support/live-server.ts';
import { caySandbox } from './index.ts';

let server: LiveServer;
let access: { url: string; apiKey: string };
beforeAll(async () => {
  server = await liveServer({ CAY_RUNTIME: 'runc' });
  access = { url: server.url, apiKey: server.apiKey };
});
afterAll(() => server?.[Symbol.asyncDispose]());

const settled = (work: Promise<unknown>) =>
  work.then(
    (value) => ({ value: value instanceof Uint8Array ? [...value] : value }),
    () => 'rejects',
  );
const text = async (chunks: AsyncIterable<string>) => {
  let all = '';
  for await (const chunk of chunks) all += chunk;
  return all;
};
const sorted = (entries: { name: string }[]) => entries.toSorted((a, b) => (a.name < b.name ? -1 : 1));

const CALLS: [string, (handle: SandboxHandle) => Promise<unknown>][] = [
  ['exec', (h) => h.process.exec('echo out; echo err >&2; exit 3')],
  ['quotes', (h) => h.process.exec(`printf '%s|' 'a b' "c'd" $((1+1))`)],
  ['env', (h) => h.process.exec('echo "$A $B"', { env: { B: 'b' } })],
  [
    'env of the sandbox',
    (h) => h.env.set({ A: 'set' }).then(() => h.process.exec('echo "$A $B"', { env: { B: 'b' } })),
  ],
  ['write', (h) => h.fs.write('/workspace/d/e/a.txt', 'one')],
  ['write relative', (h) => h.fs.write('d/b.bin', new Uint8Array([0, 255]))],
  ['read', (h) => h.fs.read('/workspace/d/e/a.txt')],
  ['read bytes', (h) => h.fs.readBytes('/workspace/d/b.bin').then((bytes) => [...bytes])],
  ['read nothing', (h) => h.fs.read('none')],
  ['cwd', (h) => h.process.exec('cat a.txt; ls ..', { cwd: '/workspace/d/e' })],
  ['list', (h) => h.fs.list('/workspace/d').then(sorted)],
  ['list nothing', (h) => h.fs.list('/workspace/none')],
  ['mkdir', (h) => h.fs.mkdir('/workspace/x/y')],
  ['mkdir again', (h) => h.fs.mkdir('/workspace/x/y')],
  ['rename', (h) => h.fs.rename('/workspace/d/e/a.txt', '/workspace/x/moved.txt')],
  ['exists', (h) => Promise.all(['d/e/a.txt', 'x/moved.txt', 'x'].map((path) => h.fs.exists(path)))],
  ['remove', (h) => h.fs.remove('/workspace/x')],
  ['remove again', (h) => h.fs.remove('/workspace/x')],
  [
    'spawn',
    async (h) => {
      const process = await h.process.spawn('read line; echo "got $line"; cat; echo err >&2; exit 4');
      await process.stdin.write('one\n');
      await process.stdin.write('two é\n');
      await process.stdin.end();
      return { out: await text(process.stdout), err: await text(process.stderr), code: await process.wait() };
    },
  ],
  [
    'git',
    (h) => h.process.exec('git init -q && git config user.email t@example.org && git config user.name t'),
  ],
  ['git add', (h) => h.git.add(['d'])],
  ['git commit', (h) => h.git.commit('first')],
  ['git status', (h) => h.git.status().then((status) => status.trim())],
  ['git flags', (h) => h.git.clone({ url: '--upload-pack=x' })],
];

describe('TanStack AI', () => {
  it('answers as the local provider of the framework does', async () => {
    const reference = await localProcessSandbox().create({});
    const handle = await caySandbox(access).create({});
    const [wanted, got]: Record<string, unknown>[] = [{}, {}];
    for (const [name, call] of CALLS) {
      wanted![name] = await settled(call(reference));
      got![name] = await settled(call(handle));
    }
    await reference.destroy();
    await handle.destroy();
    expect(got).toEqual(wanted);
  });

  it('a kill and an abort end the processes inside, and not only what is seen of them', async () => {
    const handle = await caySandbox(access).create({});
    const running = async () => Number((await handle.process.exec('pgrep -cx sleep')).stdout);
    const process = await handle.process.spawn('(sleep 987 & wait) & wait');
    await expect.poll(running).toBe(1);
    await process.kill();
    expect(await process.wait()).toBe(137);
    await expect.poll(running).toBe(0);
    const abort = new AbortController();
    const over = handle.process.exec('sleep 987', { signal: abort.signal });
    await expect.poll(running).toBe(1);
    abort.abort();
    expect((await over).exitCode).not.toBe(0);
    await expect.poll(running).toBe(0);
    const asked = await handle.process.spawn('trap "echo bye; exit 7" TERM; while :; do sleep 0.1; done');
    await handle.process.exec('sleep 0.3');
    await asked.kill('SIGTERM');
    expect([await text(asked.stdout), await asked.wait()]).toEqual(['bye\n', 7]);
    await handle.destroy();
  });

  it('is found again by its id, restores snapshots, and forks', async () => {
    const provider = caySandbox(access);
    const handle = await provider.create({ id: 'thread/1', env: { WHO: 'me' } });
    expect(handle.id).toBe('thread/1');
    await handle.fs.write('a.txt', 'before');
    const { id: snapshotId } = await handle.snapshot!('base');
    await handle.fs.write('a.txt', 'after');
    const resumed = await caySandbox(access).resume({ id: 'thread/1' });
    expect(await resumed!.fs.read('a.txt')).toBe('after');
    expect((await resumed!.process.exec('echo "$WHO"')).stdout).toBe('me\n');
    const fork = await resumed!.fork!();
    await fork.fs.write('a.txt', 'fork');
    expect(await handle.fs.read('a.txt')).toBe('after');
    expect(await (await provider.resume({ id: fork.id }))!.fs.read('a.txt')).toBe('fork');
    const restored = await provider.restoreSnapshot!({ snapshotId });
    expect(await restored.fs.read('a.txt')).toBe('before');
    await restored.destroy();
    await provider.destroy({ id: fork.id });
    await provider.destroy({ id: 'thread/1' });
    await provider.destroy({ id: 'thread/1' });
    expect(await provider.resume({ id: 'thread/1' })).toBeNull();
    const left = [];
    for await (const { id } of Sandbox.list(access)) left.push(id);
    expect(left).toEqual([]);
  });

  it('prepares a workspace of the framework, watches files, and resolves ports', async () => {
    const handle = await caySandbox({ ...access, network: 'packages' }).create({
      policy: { capabilities: { network: 'deny' } },
    });
    expect((await (await Sandbox.connect(handle.id, access)).network.get()).policy).toBe('none');
    await bootstrapWorkspace(
      handle,
      defineWorkspace({ source: { type: 'none' } as never, setup: ['echo ready > ready'] }),
    );
    expect(await handle.fs.read('ready')).toBe('ready\n');
    const seen: string[] = [];
    const watch = await handle.fs.watch!('/workspace', ({ path }) => void seen.push(path));
    await expect
      .poll(async () => {
        await handle.fs.write('watched', String(Math.random()));
        return seen.some((path) => path.endsWith('watched'));
      })
      .toBe(true);
    await watch.stop();
    await handle.process.spawn('python3 -m http.server 8000');
    const { url, headers } = await handle.ports.connect(8000);
    // Its host is one that no name service here knows.
    await expect
      .poll(async () => (await visit(server.url, new URL(url).host, '/', headers)).status)
      .toBe(200);
    await handle.destroy();
  });
});
