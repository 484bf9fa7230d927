import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect as connectHttp2, createSecureServer } from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Server, Socket } from 'node:net';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { NetworkPolicy, Put } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import type { BrokeredSecret } from '../broker/broker.ts';
import { openWorld, type Program, textOf, type World } from '../testing/program.ts';
import { newAuthority, openAuthority } from './authority.ts';

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).toReversed()) await close();
});

/** The public authority that servers of these tests have their certificates from. */
const publicMaterial = newAuthority();
const publicAuthority = openAuthority(publicMaterial);
const own = openAuthority(newAuthority());
const SECRET: BrokeredSecret = {
  name: 'TOKEN',
  placeholder: 'cay-placeholder-0123456789abcdef',
  value: 's3cr3t/+value',
};

interface Seen {
  method: string;
  path: string;
  headers: Record<string, unknown>;
  body: string;
}

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => void sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  opened.push(() => new Promise((done) => void server.close(done)));
  opened.push(() => sockets.forEach((socket) => socket.destroy()));
  return (server.address() as AddressInfo).port;
}

/** A server that answers with what it saw, over HTTP/1 or HTTP/2. */
async function site(
  protocols: 'h2' | 'http/1.1',
  name = 'api.example.org',
): Promise<{ port: number; seen: Seen[] }> {
  const seen: Seen[] = [];
  const options = {
    SNICallback: (
      _name: string,
      done: (error: null, context: ReturnType<typeof publicAuthority.contextFor>) => void,
    ) => done(null, publicAuthority.contextFor(name)),
  };
  const server = protocols === 'h2' ? createSecureServer(options) : createHttpsServer(options);
  server.on('request', (message, response) => {
    textOf(message).then(
      (body) => {
        seen.push({ method: message.method!, path: message.url!, headers: message.headers, body });
        response.setHeader(
          'location',
          `https://elsewhere.example.org/?token=${encodeURIComponent(SECRET.value)}`,
        );
        response.end(`${message.method} ${message.url} ${body} ${String(message.headers['authorization'])}`);
      },
      () => response.destroy(),
    );
  });
  return { port: await listen(server as unknown as Server), seen };
}

function world(policy: NetworkPolicy, options: Parameters<typeof openWorld>[0] = {}): World {
  const made = openWorld({
    authority: own,
    trusted: [publicMaterial.certificate],
    secrets: () => [SECRET],
    ...options,
  });
  opened.push(() => made.egress.close());
  made.names.set('api.example.org', ['127.0.0.1']);
  made.egress.policies.set(made.sandbox, [policy]);
  return made;
}

async function secure(program: Program, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connect({
    socket: program.socket,
    servername: 'api.example.org',
    ca: own.certificate,
    ...options,
  });
  await once(socket, 'secureConnect');
  socket.on('error', () => {});
  return socket;
}

async function get(
  socket: TLSSocket,
  options: { method?: string; path?: string; headers?: Record<string, string>; body?: string } = {},
) {
  const outgoing = httpRequest({ createConnection: () => socket, ...options });
  outgoing.on('error', () => {});
  outgoing.end(options.body);
  const [incoming] = (await once(outgoing, 'response')) as [import('node:http').IncomingMessage];
  return { status: incoming.statusCode!, headers: incoming.headers, body: await textOf(incoming) };
}

/** A hello that no server agrees to: it offers TLS 1.3 in nothing but its list of ciphers. */
function helloWithoutKeys(name: string): Buffer {
  const u16 = (value: number) => Buffer.from([value >> 8, value & 255]);
  const sized = (bytes: Buffer) => Buffer.concat([u16(bytes.length), bytes]);
  const names = sized(Buffer.concat([Buffer.from([0]), sized(Buffer.from(name))]));
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(33),
    sized(u16(0x1301)),
    Buffer.from([1, 0]),
    sized(Buffer.concat([u16(0), sized(names)])),
  ]);
  const hello = Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
  return Buffer.concat([Buffer.from([0x16, 3, 1]), sized(hello)]);
}

const rule = (port: number, extra: object = {}): NetworkPolicy => ({
  allow: [{ to: `api.example.org:${port}`, paths: ['/ok'], ...extra }],
});

describe('the authority', () => {
  it('signs certificates of names that only it is trusted for', () => {
    const authority = new X509Certificate(own.certificate);
    expect(authority.ca).toBe(true);
    expect(authority.verify(authority.publicKey)).toBe(true);
    expect(own.contextFor('a.example.org')).toBe(own.contextFor('a.example.org'));
    expect(() => openAuthority({ ...publicMaterial, key: newAuthority().key })).toThrow(
      'is not that of its certificate',
    );
  });
});

describe('TLS that is not terminated', () => {
  it('passes if the server name is the name, and shows the real certificate', async () => {
    const { port } = await site('http/1.1');
    const { egress, sandbox, connect: dial } = world('public');
    const socket = await secure(dial({ name: 'api.example.org', port }), { ca: publicMaterial.certificate });
    expect((await get(socket, { headers: { host: 'api.example.org' } })).body).toContain('GET /');
    expect(egress.attempts(sandbox)[0]).toMatchObject({ protocol: 'tls', method: null });
  });

  it.each([['other.example.org'], ['api.example.org.evil.org'], ['']])(
    'is refused with the server name %j',
    async (servername) => {
      const { port, seen } = await site('http/1.1');
      const { connect: dial } = world('public');
      const program = dial({ name: 'api.example.org', port });
      connect({ socket: program.socket, servername, rejectUnauthorized: false }).on('error', () => {});
      expect(await program.refused).toMatchObject({
        code: 'permission_denied',
        details: { reason: 'name_mismatch' },
      });
      expect(seen).toEqual([]);
    },
  );
});

describe('TLS that is terminated', () => {
  it.each(['http/1.1', 'h2'] as const)('decides each request over %s', async (protocol) => {
    const { port, seen } = await site(protocol);
    const { egress, sandbox, connect: dial } = world(rule(port));
    const socket = await secure(dial({ name: 'api.example.org', port }), {
      ALPNProtocols: ['h2', 'http/1.1'],
    });
    expect(socket.alpnProtocol).toBe(protocol);
    expect(socket.getPeerCertificate().subject.CN).toBe('api.example.org');
    const ask =
      protocol === 'h2'
        ? http2Client(socket, port)
        : (path: string) =>
            get(socket, { path, headers: { host: `api.example.org:${port}`, connection: 'keep-alive' } });
    expect(await ask('/ok?x=1')).toMatchObject({
      status: 200,
      body: expect.stringContaining('GET /ok?x=1') as string,
    });
    expect(await ask('/no')).toMatchObject({
      status: 403,
      body: expect.stringContaining('may not reach') as string,
    });
    expect(seen.map(({ path }) => path)).toEqual(['/ok?x=1']);
    expect(egress.attempts(sandbox)).toMatchObject([
      { protocol: 'https', method: 'GET', path: '/no', verdict: 'denied', reason: 'http_condition' },
      { protocol: 'https', method: 'GET', path: '/ok', verdict: 'allowed', status: 200 },
    ]);
    socket.destroy();
  });

  it('bodies of HTTP/2 go both ways', async () => {
    const { port, seen } = await site('h2');
    const { connect: dial } = world(rule(port));
    const socket = await secure(dial({ name: 'api.example.org', port }), { ALPNProtocols: ['h2'] });
    const answer = await http2Client(socket, port)('/ok', { ':method': 'POST' }, 'x'.repeat(300_000));
    expect(answer.status).toBe(200);
    expect(answer.body.length).toBeGreaterThan(300_000);
    expect(seen[0]!.body.length).toBe(300_000);
    socket.destroy();
  });

  it('a server with a certificate for another name is not talked to', async () => {
    const { port, seen } = await site('http/1.1');
    const { egress, sandbox, connect: dial } = world(rule(port), { trusted: [] });
    const program = dial({ name: 'api.example.org', port });
    connect({ socket: program.socket, servername: 'api.example.org', ca: own.certificate }).on(
      'error',
      () => {},
    );
    expect(await program.refused).toMatchObject({ code: 'unavailable', details: { reason: 'tls' } });
    expect(seen).toEqual([]);
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'failed', reason: 'tls' });
  });

  it('a server with a certificate of another name is not talked to', async () => {
    const { port } = await site('http/1.1', 'other.example.org');
    const { connect: dial } = world(rule(port));
    const program = dial({ name: 'api.example.org', port });
    connect({ socket: program.socket, servername: 'api.example.org', ca: own.certificate }).on(
      'error',
      () => {},
    );
    expect(await program.refused).toMatchObject({ details: { reason: 'tls' } });
  });

  it('a refusal on port 443 is explained in a page', async () => {
    const { egress, sandbox, connect: dial } = world('none');
    const socket = await secure(dial({ name: 'api.example.org', port: 443 }));
    expect(egress.attempts(sandbox)).toMatchObject([{ verdict: 'denied', protocol: 'tls' }]);
    const answer = await get(socket, { headers: { host: 'api.example.org', accept: 'application/json' } });
    expect(answer.status).toBe(403);
    expect(answer.body).toContain(`cay net allow ${sandbox} api.example.org:443`);
  });

  it('a refusal is cut where the policy of the sandbox says so', async () => {
    const cut = { refusals: 'cut' } as const;
    const { egress, sandbox, connect: dial } = world(cut);
    for (const port of [80, 443]) {
      const program = dial({ name: 'api.example.org', port });
      expect(await program.refused).toMatchObject({ details: { reason: 'no_rule' } });
    }
    // A layer above does not decide that.
    egress.policies.set(sandbox, ['none', { base: 'public', ...cut }]);
    const socket = await secure(dial({ name: 'api.example.org', port: 443 }));
    expect((await get(socket, { headers: { host: 'api.example.org' } })).status).toBe(403);
  });

  it('what is neither HTTP nor TLS is refused where requests decide', async () => {
    const { connect: dial } = world(rule(9));
    const program = dial({ name: 'api.example.org', port: 9 });
    program.socket.write('SSH-2.0-x\r\n');
    expect(await program.refused).toMatchObject({ details: { reason: 'ambiguous_request' } });
  });

  it('a program whose TLS fails at once is recorded, and harms nobody', async () => {
    const { port } = await site('http/1.1');
    const made = world(rule(port));
    for (let tries = 0; tries < 10; tries++) {
      const program = made.connect({ name: 'api.example.org', port });
      // It arrives before the server has begun its own TLS, whose session ends in the same moment.
      program.socket.write(helloWithoutKeys('api.example.org'));
      program.socket.resume();
      expect(await program.refused).toMatchObject({ details: { reason: 'tls' } });
    }
    expect(made.egress.attempts(made.sandbox)[0]).toMatchObject({ verdict: 'failed', reason: 'tls' });
    const socket = await secure(made.connect({ name: 'api.example.org', port }));
    const headers = { host: `api.example.org:${port}` };
    expect((await get(socket, { path: '/ok', headers })).status).toBe(200);
  });

  it('without an authority, conditions on HTTPS fail closed', async () => {
    const { port, seen } = await site('http/1.1');
    const { connect: dial } = world(rule(port), { authority: undefined });
    const program = dial({ name: 'api.example.org', port });
    connect({ socket: program.socket, servername: 'api.example.org', rejectUnauthorized: false }).on(
      'error',
      () => {},
    );
    expect(await program.refused).toMatchObject({ details: { reason: 'tls' } });
    expect(seen).toEqual([]);
  });
});

describe('secrets', () => {
  const ask = async (
    put: Put | Put[],
    request: Parameters<typeof get>[1],
    protocol: 'http/1.1' | 'h2' = 'http/1.1',
  ) => {
    const { port, seen } = await site(protocol);
    const made = world({ allow: [{ to: `api.example.org:${port}`, put }] });
    const socket = await secure(made.connect({ name: 'api.example.org', port }));
    const answer = await get(socket, {
      ...request,
      headers: { host: `api.example.org:${port}`, ...request?.headers },
    });
    socket.destroy();
    return { answer, seen, attempts: made.egress.attempts(made.sandbox) };
  };

  it('go into a header, and never come back', async () => {
    const put: Put = { as: 'header', header: 'Authorization', secret: 'TOKEN', value: 'Bearer {secret}' };
    const { answer, seen, attempts } = await ask(put, {
      path: '/x',
      headers: { authorization: 'mine', 'accept-encoding': 'gzip' },
    });
    expect(seen[0]!.headers).toMatchObject({
      authorization: `Bearer ${SECRET.value}`,
      'accept-encoding': 'identity',
    });
    expect(JSON.stringify(answer)).not.toContain(SECRET.value);
    expect(answer.headers.location).toBe(`https://elsewhere.example.org/?token=${SECRET.placeholder}`);
    expect(answer.body).toContain('*'.repeat(SECRET.value.length));
    expect(JSON.stringify(attempts)).not.toContain(SECRET.value);
  });

  it('replace their placeholder in headers, basic credentials and query', async () => {
    const put: Put = { as: 'placeholder', secret: 'TOKEN' };
    const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;
    const { seen } = await ask(put, {
      path: `/x?key=${SECRET.placeholder}&y=1`,
      headers: { authorization: basic(`user:${SECRET.placeholder}`), 'x-key': `k ${SECRET.placeholder}` },
    });
    expect(seen[0]).toMatchObject({
      path: `/x?key=${encodeURIComponent(SECRET.value)}&y=1`,
      headers: { authorization: basic(`user:${SECRET.value}`), 'x-key': `k ${SECRET.value}` },
    });
  });

  it('go into basic credentials, the query, and those of git', async () => {
    const first = await ask(
      [
        { as: 'basic', username: 'me', secret: 'TOKEN' },
        { as: 'query', parameter: 'api key', secret: 'TOKEN' },
      ],
      { path: '/x?a=1&api+key=old' },
    );
    expect(first.seen[0]!.path).toBe(`/x?a=1&api%20key=${encodeURIComponent(SECRET.value)}`);
    expect(first.seen[0]!.headers['authorization']).toBe(
      `Basic ${Buffer.from(`me:${SECRET.value}`).toString('base64')}`,
    );
    const git = await ask(
      { as: 'git', secret: 'TOKEN' },
      { path: '/o/r.git/info/refs?service=git-upload-pack' },
    );
    expect(git.seen[0]!.headers['authorization']).toBe(
      `Basic ${Buffer.from(`x-access-token:${SECRET.value}`).toString('base64')}`,
    );
  });

  it('sign requests for AWS', async () => {
    const put: Put = { as: 'aws', accessKeyId: 'AKIDEXAMPLE', secret: 'TOKEN' };
    const credential = `AWS4-HMAC-SHA256 Credential=${SECRET.placeholder}/20260101/eu-west-1/dynamodb/aws4_request, SignedHeaders=host, Signature=00`;
    const { seen } = await ask(put, {
      method: 'POST',
      path: '/',
      headers: { authorization: credential },
      body: '{}',
    });
    expect(seen[0]!.headers['authorization']).toMatch(
      /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\/\d{8}\/eu-west-1\/dynamodb\/aws4_request, SignedHeaders=host;x-amz-date, Signature=[0-9a-f]{64}$/,
    );
    expect(seen[0]!.body).toBe('{}');
  });

  it.each([
    ['the path', { path: `/x/${SECRET.placeholder}` }],
    [
      'the query, encoded',
      {
        path: `/x?a=${Buffer.from(SECRET.placeholder).toString('hex').replace(/../g, '%$&')}`,
      },
    ],
    ['a header', { headers: { 'x-anything': SECRET.placeholder } }],
    [
      'basic credentials',
      { headers: { authorization: `Basic ${Buffer.from(`a:${SECRET.placeholder}`).toString('base64')}` } },
    ],
    ['the body', { method: 'POST', body: `{"key":"${SECRET.placeholder}"}` }],
  ])('a placeholder in %s of another request is refused and recorded', async (_where, request) => {
    const { answer, attempts } = await ask({ as: 'header', header: 'x-static', value: 'v' }, request);
    expect(answer.status).toBe(403);
    expect(answer.body).toContain('placeholder');
    expect(attempts[0]).toMatchObject({ verdict: 'denied', reason: 'placeholder' });
  });

  it('a placeholder in a plain connection is refused', async () => {
    const { port } = await site('http/1.1');
    const { connect: dial } = world('public');
    const program = dial({ name: 'api.example.org', port });
    program.socket.write('\0binary');
    await program.accepted;
    program.socket.write(SECRET.placeholder.slice(0, 10));
    program.socket.write(SECRET.placeholder.slice(10));
    expect(await program.refused).toMatchObject({ details: { reason: 'placeholder' } });
  });
});

function http2Client(socket: TLSSocket, port: number) {
  const session = connectHttp2(`https://api.example.org:${port}`, { createConnection: () => socket });
  session.on('error', () => {});
  return async (path: string, headers: Record<string, string> = {}, body?: string) => {
    const stream = session.request({ ':path': path, ...headers }, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    // A stream that nobody reads by the time it closes is emptied.
    const text = textOf(stream);
    const [answered] = (await once(stream, 'response')) as [Record<string, unknown>];
    return { status: answered[':status'] as number, body: await text };
  };
}
