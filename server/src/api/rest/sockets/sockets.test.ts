import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestServer, type TestServer } from '../../testing/test-server.ts';

let test: TestServer;
let sandbox: string;

beforeAll(async () => {
  test = await startTestServer();
  sandbox = (await test.create()).id;
  await test.call('POST', `/v1/sandboxes/${sandbox}/commands`, { body: { argv: ['tcp-echo', '9000'] } });
});
afterAll(() => test[Symbol.asyncDispose]());

interface Client {
  socket: WebSocket;
  /** Text messages, parsed. */
  events: Record<string, unknown>[];
  /** Bytes by channel. */
  bytes: Map<number, string>;
  closed: Promise<number>;
}

async function connect(
  path: string,
  options: { key?: string; protocols?: string[]; raw?: boolean } = {},
): Promise<Client> {
  const headers = options.protocols ? {} : { authorization: `Bearer ${options.key ?? test.alice}` };
  const socket = new WebSocket(test.server.url.replace('http', 'ws') + path, options.protocols ?? [], {
    headers,
  });
  const client: Client = {
    socket,
    events: [],
    bytes: new Map(),
    closed: once(socket, 'close').then(([code]) => code as number),
  };
  socket.on('message', (data: Buffer, binary: boolean) => {
    if (!binary) client.events.push(JSON.parse(data.toString()) as Record<string, unknown>);
    else if (options.raw) client.bytes.set(0, (client.bytes.get(0) ?? '') + data.toString());
    else client.bytes.set(data[0]!, (client.bytes.get(data[0]!) ?? '') + data.subarray(1).toString());
  });
  await once(socket, 'open');
  return client;
}

const execPath = () => `/v1/sandboxes/${sandbox}/exec`;

describe('a WebSocket for commands', () => {
  it('carries input in and output out, up to the end', async () => {
    const { socket, events, bytes, closed } = await connect(execPath());
    socket.send(JSON.stringify({ exec: { argv: ['cat'], stdin: true } }));
    socket.send(Buffer.from('hello '));
    socket.send(Buffer.from('world'));
    socket.send(JSON.stringify({ closeStdin: true }));
    expect(await closed).toBe(1000);
    expect(bytes.get(1)).toBe('hello world');
    expect(events).toMatchObject([
      { type: 'started', existing: false },
      { type: 'end', exitCode: 0 },
    ]);
  });

  it('keeps stdout and stderr apart', async () => {
    const { socket, bytes, closed } = await connect(execPath());
    socket.send(JSON.stringify({ exec: { shell: 'echo a; echo b >&2' } }));
    await closed;
    expect([bytes.get(1), bytes.get(2)]).toEqual(['a\n', 'b\n']);
  });

  it('passes signals on', async () => {
    const { socket, events, closed } = await connect(execPath());
    socket.send(JSON.stringify({ exec: { argv: ['sleep', '100'] } }));
    socket.send(JSON.stringify({ signal: 'SIGTERM' }));
    await closed;
    expect(events.at(-1)).toMatchObject({
      type: 'end',
      end: { kind: 'signalled', signal: 'SIGTERM' },
      exitCode: 143,
    });
  });

  it('lets the command go on without it, and others attach', async () => {
    const first = await connect(execPath());
    first.socket.send(JSON.stringify({ exec: { id: 'stays', argv: ['cat'], stdin: true } }));
    first.socket.send(Buffer.from('before '));
    await expect.poll(() => first.bytes.get(1)).toBe('before ');
    first.socket.terminate();
    const second = await connect(execPath());
    second.socket.send(JSON.stringify({ attach: { id: 'stays' } }));
    second.socket.send(Buffer.from('after'));
    second.socket.send(JSON.stringify({ closeStdin: true }));
    await second.closed;
    expect(second.bytes.get(1)).toBe('before after');
    expect(second.events[0]).toMatchObject({ type: 'started', id: 'stays', existing: true });
  });

  it('takes the key as a subprotocol, which it does not repeat', async () => {
    const { socket } = await connect(execPath(), { protocols: ['cay', `cay.key.${test.alice}`] });
    expect(socket.protocol).toBe('cay');
    socket.terminate();
  });

  it.each([
    ['text that is not JSON', 'nonsense', 4400],
    ['an unknown message', '{"run":1}', 4400],
    ['a command that does not exist', '{"exec":{"argv":["no-such-program"]}}', 4404],
    ['a command that is not known', '{"attach":{"id":"unknown"}}', 4404],
  ])('refuses %s', async (_title, message, code) => {
    const { socket, events, closed } = await connect(execPath());
    socket.send(message);
    expect(await closed).toBe(code);
    expect(events.at(-1)).toMatchObject({ type: 'error', error: { code: expect.any(String) } });
  });

  it.each([
    ['without a key', {}, 401],
    ['with an unknown key', { authorization: `Bearer e2b_${'0'.repeat(40)}` }, 401],
    ['of a stranger', 'bob', 404],
  ] as const)('is refused %s', async (_title, headers, status) => {
    const given = headers === 'bob' ? { authorization: `Bearer ${test.bob}` } : headers;
    for (const path of [execPath(), `/v1/sandboxes/${sandbox}/ports/9000/tcp`]) {
      const socket = new WebSocket(test.server.url.replace('http', 'ws') + path, { headers: given });
      const [, response] = (await once(socket, 'unexpected-response')) as [
        unknown,
        { statusCode: number; destroy(): void },
      ];
      expect(response.statusCode).toBe(status);
      response.destroy();
    }
  });

  it('waits for a client that does not read', async () => {
    const { socket, closed } = await connect(execPath());
    socket.send(JSON.stringify({ exec: { id: 'ws-flood', argv: ['flood', String(512 * 1024 * 1024)] } }));
    await once(socket, 'message');
    socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 500));
    const { json } = await test.call('GET', `/v1/sandboxes/${sandbox}/commands/ws-flood`);
    expect(json.end).toBeUndefined();
    expect(json.outputBytes).toBeLessThan(64 * 1024 * 1024);
    socket.terminate();
    await closed;
    await test.call('POST', `/v1/sandboxes/${sandbox}/commands/ws-flood/signal`, {
      body: { signal: 'SIGKILL' },
    });
  });
});

describe('a WebSocket for a port', () => {
  const path = (port: number) => `/v1/sandboxes/${sandbox}/ports/${port}/tcp`;

  it('carries bytes both ways until both sides have ended', async () => {
    const { socket, bytes, closed } = await connect(path(9000), { raw: true });
    socket.send(Buffer.from('ping'));
    await expect.poll(() => bytes.get(0)).toBe('ping');
    socket.send(JSON.stringify({ end: true }));
    expect(await closed).toBe(1000);
  });

  it('carries much', async () => {
    const { socket, bytes, closed } = await connect(path(9000), { raw: true });
    for (let i = 0; i < 64; i++) socket.send(Buffer.alloc(65_536, 97 + (i % 26)));
    socket.send(JSON.stringify({ end: true }));
    expect(await closed).toBe(1000);
    expect(bytes.get(0)).toHaveLength(64 * 65_536);
  });

  it('answers unavailable when nothing listens on the port', async () => {
    const { events, closed } = await connect(path(9001));
    expect(await closed).toBe(4503);
    expect(events).toMatchObject([{ type: 'error', error: { code: 'unavailable' } }]);
  });
});

describe('the metrics', () => {
  const count = async (name: string) => {
    const { text } = await test.call('GET', '/metrics', { key: test.admin });
    return Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${name} `))
        ?.split(' ')[1] ?? 0,
    );
  };

  it('count WebSockets that are open, that were, and what they carried', async () => {
    const route = '{route="tcpSocket"}';
    const before = await count(`cay_websockets_total${route}`);
    await expect.poll(() => count(`cay_websockets_open${route}`)).toBe(0);
    const received = '{route="tcpSocket",direction="received"}';
    const bytesBefore = await count(`cay_websocket_bytes_total${received}`);
    const { socket, bytes, closed } = await connect(`/v1/sandboxes/${sandbox}/ports/9000/tcp`, { raw: true });
    expect(await count(`cay_websockets_open${route}`)).toBe(1);
    socket.send(Buffer.alloc(1000, 120));
    await expect.poll(() => bytes.get(0)?.length).toBe(1000);
    socket.terminate();
    await closed;
    await expect.poll(() => count(`cay_websockets_open${route}`)).toBe(0);
    expect(await count(`cay_websockets_total${route}`)).toBe(before + 1);
    expect((await count(`cay_websocket_bytes_total${received}`)) - bytesBefore).toBeGreaterThanOrEqual(1000);
  });

  it('count those that were refused as requests', async () => {
    const refused = 'cay_http_requests_total{route="execSocket",status="4xx"}';
    const before = await count(refused);
    const socket = new WebSocket(`${test.server.url.replace('http', 'ws')}/v1/sandboxes/sbx_unknown/exec`, {
      headers: { authorization: `Bearer ${test.alice}` },
    });
    await expect(once(socket, 'open')).rejects.toThrow('404');
    await expect.poll(() => count(refused)).toBe(before + 1);
  });
});
