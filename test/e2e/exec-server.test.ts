/** `cay exec-server`, spoken to as Codex does: JSON-RPC in lines, or in WebSocket messages. */
import type { ChildProcess } from 'node:child_process';
import { request } from 'node:http';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCay, type Cay } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';

interface Message {
  id?: number | string;
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
  error?: { code: number; message: string };
}

/** A client of the protocol: requests by number, and the notifications as they came. */
function client(send: (text: string) => void) {
  const waiting = new Map<number | string, (message: Message) => void>();
  const notified: Message[] = [];
  let last = 0;
  return {
    notified,
    receive(text: string) {
      const message = JSON.parse(text) as Message;
      if (message.method !== undefined) notified.push(message);
      else waiting.get(message.id!)?.(message);
    },
    raw: (text: string, id: number | string) =>
      new Promise<Message>((resolve) => {
        waiting.set(id, resolve);
        send(text);
      }),
    call(method: string, params: object = {}): Promise<Message> {
      const id = ++last;
      return this.raw(JSON.stringify({ id, method, params }), id);
    },
    async result(method: string, params: object = {}) {
      const { result, error } = await this.call(method, params);
      if (error) throw new Error(`${method}: ${error.message}`);
      return result!;
    },
  };
}

const text = (chunks: unknown) =>
  (chunks as { chunk: string }[]).map(({ chunk }) => Buffer.from(chunk, 'base64').toString()).join('');
const base64 = (data: string) => Buffer.from(data).toString('base64');
const HOME = 'file:///home/user';

/** How a page of that origin is answered that wants a WebSocket. */
function upgradeFrom(origin: string, url: string): Promise<number | undefined> {
  const headers = {
    origin,
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-version': '13',
    'sec-websocket-key': Buffer.alloc(16).toString('base64'),
  };
  return new Promise((resolve, reject) => {
    request(url.replace('ws:', 'http:'), { headers })
      .on('response', ({ statusCode }) => resolve(statusCode))
      .on('upgrade', () => resolve(101))
      .on('error', reject)
      .end();
  });
}

const why = whyNoLocal();
if (why) console.warn(`cay exec-server is not tested: ${why}`);

describe.skipIf(why)('cay exec-server', () => {
  let cay: Cay;
  let child: ChildProcess;
  let codex: ReturnType<typeof client>;
  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: 'runc' });
    expect((await cay.run('create', '--name', 'box')).code).toBe(0);
    child = cay.spawn(['exec-server', 'box'], 'pipe');
    codex = client((line) => child.stdin!.write(`${line}\n`));
    createInterface({ input: child.stdout! }).on('line', (line) => codex.receive(line));
  });
  afterAll(async () => {
    child?.stdin!.end();
    await cay?.[Symbol.asyncDispose]();
  });
  const start = (processId: string, argv: string[], more: object = {}) =>
    codex.result('process/start', { processId, argv, cwd: HOME, env: {}, tty: false, ...more });

  it('wants a handshake, and refuses what is wrong', async () => {
    expect((await codex.call('environment/info')).error?.code).toBe(-32600);
    expect(await codex.result('initialize', { clientName: 'test' })).toMatchObject({
      sessionId: expect.any(String) as string,
    });
    child.stdin!.write('{"method":"initialized"}\n');
    expect((await codex.call('initialize', { clientName: 'test' })).error?.code).toBe(-32600);
    expect((await codex.call('no/such')).error?.code).toBe(-32601);
    expect((await codex.call('__proto__')).error?.code).toBe(-32601);
    expect((await codex.call('process/start', { processId: 'x' })).error?.code).toBe(-32602);
    expect((await codex.raw('{"nonsense', -1)).error?.code).toBe(-32700);
    expect((await codex.call('fs/readFile', { path: 'https://example.org/a' })).error?.code).toBe(-32602);
    expect(await codex.result('environment/info')).toMatchObject({ cwd: HOME, shell: { name: 'bash' } });
    expect(await codex.result('environment/status')).toEqual({ status: 'ready' });
  });

  it('runs a process, and tells its output and its end both ways', async () => {
    expect(
      await start('p1', ['sh', '-c', 'echo "$WHO"; echo err >&2; exit 3'], { env: { WHO: 'me' } }),
    ).toEqual({ processId: 'p1', sandboxType: 'none' });
    let read: Record<string, unknown>;
    do read = await codex.result('process/read', { processId: 'p1', waitMs: 5000 });
    while (read['closed'] !== true);
    expect(read).toMatchObject({ exited: true, exitCode: 3, failure: null });
    expect(text(read['chunks'])).toBe('me\nerr\n');
    const seqs = codex.notified.filter(({ params }) => params?.['processId'] === 'p1');
    expect(seqs.map(({ method }) => method)).toEqual([
      'process/output',
      'process/output',
      'process/exited',
      'process/closed',
    ]);
    expect(seqs.map(({ params }) => params!['seq'])).toEqual([1, 2, 3, 4]);
    expect(
      (await codex.call('process/start', { processId: 'p1', argv: ['true'], cwd: HOME, env: {}, tty: false }))
        .error,
    ).toBeDefined();
  });

  it('writes to standard input once for one id, and refuses where there is none', async () => {
    await start('p2', ['sh', '-c', 'read a; read b; echo "$a-$b"'], { pipeStdin: true });
    const write = (chunk: string, writeId: string) =>
      codex.result('process/write', { processId: 'p2', chunk: base64(chunk), writeId });
    for (let sent = 0; sent < 2; sent++) expect(await write('one\n', 'w1')).toEqual({ status: 'accepted' });
    await write('two\n', 'w2');
    await expect
      .poll(async () => text((await codex.result('process/read', { processId: 'p2' }))['chunks']))
      .toBe('one-two\n');
    await start('p3', ['sleep', '60']);
    expect(await codex.result('process/write', { processId: 'p3', chunk: '', writeId: 'w' })).toEqual({
      status: 'stdinClosed',
    });
    expect(await codex.result('process/write', { processId: 'none', chunk: '', writeId: 'w' })).toEqual({
      status: 'unknownProcess',
    });
    expect(await codex.result('process/terminate', { processId: 'p3' })).toEqual({ running: true });
    await expect
      .poll(async () => (await codex.result('process/read', { processId: 'p3' }))['exitCode'])
      .toBe(137);
    expect(await codex.result('process/terminate', { processId: 'p3' })).toEqual({ running: false });
  });

  it('has terminals, signals, and other names for programs', async () => {
    await start('p4', ['sh', '-c', 'test -t 1 && echo terminal; cat'], { tty: true });
    await expect
      .poll(async () => text((await codex.result('process/read', { processId: 'p4' }))['chunks']))
      .toContain('terminal');
    await codex.result('process/signal', { processId: 'p4', signal: 'interrupt' });
    await expect
      .poll(async () => (await codex.result('process/read', { processId: 'p4' }))['closed'])
      .toBe(true);
    await start('p5', ['sh', '-c', 'echo $0'], { arg0: 'other' });
    await expect
      .poll(async () => text((await codex.result('process/read', { processId: 'p5' }))['chunks']))
      .toBe('other\n');
  });

  it('has the files of the sandbox', async () => {
    const file = `${HOME}/a%20b/c.txt`;
    expect((await codex.call('fs/readFile', { path: file })).error?.code).toBe(-32004);
    await codex.result('fs/createDirectory', { path: `${HOME}/a%20b`, recursive: false });
    expect(
      (await codex.call('fs/createDirectory', { path: `${HOME}/a%20b`, recursive: false })).error,
    ).toBeDefined();
    await codex.result('fs/writeFile', { path: file, dataBase64: base64('hello') });
    expect(await codex.result('fs/readFile', { path: file })).toEqual({ dataBase64: base64('hello') });
    expect(await codex.result('fs/getMetadata', { path: file })).toMatchObject({ isFile: true, size: 5 });
    await codex.result('fs/copy', {
      sourcePath: `${HOME}/a%20b`,
      destinationPath: `${HOME}/copy`,
      recursive: true,
    });
    expect(await codex.result('fs/readDirectory', { path: `${HOME}/copy` })).toEqual({
      entries: [{ fileName: 'c.txt', isDirectory: false, isFile: true }],
    });
    await codex.result('fs/open', { handleId: 'h', path: file });
    expect(await codex.result('fs/readBlock', { handleId: 'h', offset: 1, len: 3 })).toEqual({
      chunk: base64('ell'),
      eof: false,
    });
    expect(await codex.result('fs/readBlock', { handleId: 'h', offset: 5, len: 3 })).toEqual({
      chunk: '',
      eof: true,
    });
    await codex.result('fs/close', { handleId: 'h' });
    expect(await codex.result('fs/canonicalize', { path: `${HOME}/copy/../a%20b` })).toEqual({
      path: `${HOME}/a%20b`,
    });
    const options = { maxDepth: 1, maxDirectories: 10, maxEntries: 100, followDirectorySymlinks: false };
    const walked = await codex.result('fs/walk', { path: HOME, options: { ...options, maxDepth: 2 } });
    expect((walked['entries'] as { path: string }[]).map(({ path }) => path)).toContain(file);
    expect(
      await codex.result('fs/walk', { path: HOME, options: { ...options, maxEntries: 1 } }),
    ).toMatchObject({
      truncated: true,
    });
    await codex.result('fs/remove', { path: `${HOME}/copy`, recursive: true });
    await codex.result('fs/remove', { path: `${HOME}/copy`, force: true });
    expect((await codex.call('fs/remove', { path: `${HOME}/copy`, force: false })).error?.code).toBe(-32004);
  });

  it('serves WebSockets on loopback alone, and ends processes with the connection', async () => {
    expect((await cay.run('exec-server', 'box', '--listen', '0.0.0.0:0')).code).toBe(64);
    const server = cay.start('exec-server', 'box', '--listen', '127.0.0.1:0');
    let said = '';
    server.stderr!.on('data', (chunk: Buffer) => (said += chunk.toString()));
    server.stdout!.on('data', (chunk: Buffer) => (said += chunk.toString()));
    await expect.poll(() => /ws:\/\/[\d.:]+/.exec(said)?.[0], { timeout: 20_000 }).toBeDefined();
    const url = /ws:\/\/[\d.:]+/.exec(said)![0];
    expect(await upgradeFrom('https://example.org', url)).toBe(401);
    const socket = new WebSocket(url);
    await new Promise((resolve) => socket.addEventListener('open', resolve, { once: true }));
    const far = client((message) => socket.send(message));
    socket.addEventListener('message', ({ data }) => far.receive(String(data)));
    await far.result('initialize', { clientName: 'far' });
    await far.result('process/start', {
      processId: 'p',
      argv: ['sleep', '4242'],
      cwd: HOME,
      env: {},
      tty: false,
    });
    const running = async () => (await cay.run('exec', 'box', '--', 'pgrep', '-f', 'sleep 4242')).code === 0;
    expect(await running()).toBe(true);
    socket.close();
    await expect.poll(running, { timeout: 10_000 }).toBe(false);
    server.kill('SIGTERM');
  });
});
