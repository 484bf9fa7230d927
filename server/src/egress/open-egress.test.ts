import { once } from 'node:events';
import {
  createServer as createHttpServer,
  request as httpRequest,
  type Server as HttpServer,
} from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { openProgram, openWorld, type Program, textOf, type World } from './testing/program.ts';

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).toReversed()) await close();
});

function world(
  policy: NetworkPolicy | NetworkPolicy[],
  options: Parameters<typeof openWorld>[0] = {},
): World {
  const made = openWorld(options);
  opened.push(() => made.egress.close());
  made.egress.policies.set(made.sandbox, Array.isArray(policy) ? policy : [policy]);
  return made;
}

async function listen(server: Server | HttpServer, host = '127.0.0.1', port = 0): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  opened.push(() => new Promise((done) => void server.close(done)));
  opened.push(() => ('closeAllConnections' in server ? server.closeAllConnections() : undefined));
  return (server.address() as AddressInfo).port;
}

/** A server of raw bytes that sends back what it gets, in capitals, and ends when the client has. */
async function echoServer(host?: string): Promise<{ port: number; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (chunk) => socket.write(chunk.toString().toUpperCase()));
    socket.on('end', () => socket.end('BYE'));
  });
  const port = await listen(server, host);
  opened.push(() => sockets.forEach((socket) => socket.destroy()));
  return { port, sockets };
}

interface Answer {
  status: number;
  statusText: string;
  headers: Record<string, unknown>;
  body: string;
}

function get(
  program: Program | Duplex,
  options: { path?: string; method?: string; headers?: Record<string, string>; body?: string },
): Promise<Answer> {
  const socket =
    'socket' in program && 'refused' in program ? (program as Program).socket : (program as Duplex);
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({ createConnection: () => socket as Socket, ...options });
    outgoing.on('error', reject);
    outgoing.on('response', (incoming) => {
      textOf(incoming).then(
        (body) =>
          resolve({
            status: incoming.statusCode!,
            statusText: incoming.statusMessage!,
            headers: incoming.headers,
            body,
          }),
        reject,
      );
    });
    outgoing.end(options.body);
  });
}

describe('raw connections', () => {
  it('carries bytes both ways to the pinned address, with half-close', async () => {
    const { port } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world({ allow: [`echo.example.org:${port}`] });
    names.set('echo.example.org', ['127.0.0.1']);
    const program = dial({ name: 'Echo.Example.org.', port, process: 'nc' });
    await program.accepted;
    program.socket.end('hello\n');
    expect(await textOf(program.socket)).toBe('HELLO\nBYE');
    await vi.waitFor(() => expect(egress.stats(sandbox)!.connections).toBe(0));
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      name: 'echo.example.org',
      address: '127.0.0.1',
      port,
      process: 'nc',
      protocol: 'tcp',
      verdict: 'allowed',
      rule: `echo.example.org:${port}`,
      bytesOut: 6,
      bytesIn: 9,
      open: false,
    });
    expect(egress.stats(sandbox)).toMatchObject({ bytesOut: 6, bytesIn: 9, attempts: 1, denied: 0 });
  });

  it('carries servers that speak first', async () => {
    const server = createServer((socket) => socket.end('220 ready\r\n'));
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`mail.example.org:${port}`] });
    names.set('mail.example.org', ['127.0.0.1']);
    expect(await textOf(dial({ name: 'mail.example.org', port }).socket)).toBe('220 ready\r\n');
  });

  it('copies many megabytes unchanged, at the pace of the reader', async () => {
    const total = 32 * 1024 * 1024;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(Buffer.alloc(total, 'x'));
    });
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`big.example.org:${port}`] });
    names.set('big.example.org', ['127.0.0.1']);
    let size = 0;
    for await (const chunk of dial({ name: 'big.example.org', port }).socket) {
      size += (chunk as Buffer).length;
      if (size % 7 === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    expect(size).toBe(total);
  });

  it('does not read from a target whose bytes the program does not take', async () => {
    let written = 0;
    const server = createServer((socket) => {
      socket.on('error', () => {});
      const write = () => {
        while (socket.write(Buffer.alloc(65_536))) written += 65_536;
        socket.once('drain', write);
      };
      write();
    });
    const port = await listen(server);
    const { names, connect: dial } = world({ allow: [`flood.example.org:${port}`] });
    names.set('flood.example.org', ['127.0.0.1']);
    const program = dial({ name: 'flood.example.org', port });
    await program.accepted;
    await new Promise((resolve) => setTimeout(resolve, 300));
    const before = written;
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(written).toBe(before);
    expect(written).toBeLessThan(32 * 1024 * 1024);
    program.socket.destroy();
  });

  it('refuses in milliseconds what no rule allows, with the rule to add', async () => {
    const { egress, sandbox, connect: dial } = world('packages');
    const began = performance.now();
    const error = await dial({ name: 'db.example.org', port: 5432 }).refused;
    expect(performance.now() - began).toBeLessThan(100);
    expect(error).toMatchObject({ code: 'permission_denied', details: { reason: 'no_rule' } });
    expect(error.hint).toBe(`To allow it: cay net allow ${sandbox} db.example.org:5432`);
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      verdict: 'denied',
      reason: 'no_rule',
      suggestion: 'db.example.org:5432',
    });
  });

  it('refuses everything of a sandbox without a policy', async () => {
    const { egress, sandbox } = world('public');
    egress.policies.remove(sandbox);
    const program = openProgram(egress, sandbox, { name: 'example.org', port: 443 });
    expect(await program.refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'no_policy' },
    });
    expect(await egress.lookup(sandbox, { name: 'example.org' })).toEqual({ kind: 'absent' });
  });

  it.each([
    [{ name: 'localhost', port: 80 }],
    [{ name: 'a'.repeat(300), port: 80 }],
    [{ name: 'example.org', port: 0 }],
    [{ name: 'example.org', port: 70_000 }],
    [{ name: 'example.org', port: Number.NaN }],
    [{ name: '127.0.0.1', port: 80 }],
    [{ name: 'example.org\0', port: 80 }],
    [{ address: '::1%lo', port: 80 }],
    [{ address: '0177.0.0.1', port: 80 }],
    [{ port: 80 }],
  ])('refuses %j, which is no target', async (target) => {
    expect(await world('public').connect(target).refused).toMatchObject({ code: 'invalid_argument' });
  });

  it('says that a target does not answer', async () => {
    const { port } = await echoServer('127.0.0.2');
    const { names, connect: dial } = world('public');
    names.set('gone.example.org', ['127.0.0.1']);
    expect(await dial({ name: 'gone.example.org', port }).refused).toMatchObject({ code: 'unavailable' });
    expect(await dial({ name: 'absent.example.org', port }).refused).toMatchObject({
      code: 'unavailable',
      details: { reason: 'resolve' },
    });
  });

  it('tries the next address of a name', async () => {
    const { port } = await echoServer('127.0.0.3');
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('many.example.org', ['127.0.0.1', '127.0.0.2', '127.0.0.3']);
    const program = dial({ name: 'many.example.org', port });
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
    expect(egress.attempts(sandbox)[0]!.address).toBe('127.0.0.3');
  });
});

describe('addresses', () => {
  it('refuses names that resolve to what is not public, and connects to none of it', async () => {
    const { port, sockets } = await echoServer('127.0.0.9');
    const { egress, sandbox, names, connect: dial } = world('public');
    for (const address of [
      '127.0.0.9',
      '10.0.0.1',
      '169.254.169.254',
      '::ffff:10.0.0.1',
      'fd00::1',
      '64:ff9b::a00:1',
    ]) {
      names.set('rebound.example.org', [address]);
      const error = await dial({ name: 'rebound.example.org', port }).refused;
      expect(error, address).toMatchObject({ code: 'permission_denied', details: { reason: 'address' } });
    }
    expect(sockets.size).toBe(0);
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'address' });
  });

  it('uses the public addresses of a name that has others too', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world('public');
    names.set('mixed.example.org', ['10.0.0.1', '127.0.0.1']);
    const program = dial({ name: 'mixed.example.org', port });
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
  });

  it('resolves once for a connection', async () => {
    const { port } = await echoServer();
    const { names, resolved, connect: dial } = world('public');
    names.set('once.example.org', ['127.0.0.1']);
    const program = dial({ name: 'once.example.org', port });
    await program.accepted;
    names.set('once.example.org', ['127.0.0.9']);
    program.socket.end('x');
    expect(await textOf(program.socket)).toBe('XBYE');
    expect(resolved).toEqual(['once.example.org']);
  });

  it('a rule of addresses lets names and programs reach them, if every layer has it', async () => {
    const { port } = await echoServer('127.0.0.9');
    const own: NetworkPolicy = { base: 'public', allow: [`127.0.0.9:${port}`] };
    const reach = async (policies: NetworkPolicy[], target: object) => {
      const { names, connect: dial } = world(policies);
      names.set('inner.example.org', ['127.0.0.9']);
      const program = dial({ port, ...target });
      return Promise.race([program.accepted.then(() => 'reached'), program.refused.then(({ code }) => code)]);
    };
    expect(await reach([own], { name: 'inner.example.org' })).toBe('reached');
    expect(await reach([own], { address: '127.0.0.9' })).toBe('reached');
    expect(await reach([own, 'public'], { name: 'inner.example.org' })).toBe('permission_denied');
    expect(await reach([own, 'public'], { address: '127.0.0.9' })).toBe('permission_denied');
    expect(await reach(['public', own], { address: '127.0.0.9' })).toBe('permission_denied');
  });

  it('a program that chooses an address needs a rule of addresses', async () => {
    const { port } = await echoServer();
    const { connect: dial } = world({ allow: [`echo.example.org:${port}`] });
    expect(await dial({ address: '127.0.0.1', port }).refused).toMatchObject({ code: 'permission_denied' });
    const open = world('public').connect({ address: '127.0.0.1', port });
    await open.accepted;
    open.socket.destroy();
  });
});

describe('live changes', () => {
  it('cuts what is not allowed any more, and leaves the rest', async () => {
    const { port } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('a.example.org', ['127.0.0.1']);
    names.set('b.example.org', ['127.0.0.1']);
    const a = dial({ name: 'a.example.org', port });
    const b = dial({ name: 'b.example.org', port });
    for (const program of [a, b]) {
      await program.accepted;
      program.socket.write('x');
      await once(program.socket, 'data');
    }
    egress.policies.set(sandbox, [{ allow: [`a.example.org:${port}`] }]);
    expect(await b.refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'policy_changed' },
    });
    a.socket.write('y');
    expect(String((await once(a.socket, 'data'))[0])).toBe('Y');
    egress.policies.remove(sandbox);
    expect(await a.refused).toMatchObject({ code: 'permission_denied' });
  });

  it('a policy that cannot be read changes nothing', async () => {
    const { egress, sandbox } = world('public');
    expect(() => egress.policies.set(sandbox, [{ allow: ['no such'] }])).toThrow('spaces');
    expect(egress.policies.get(sandbox)).toEqual(['public']);
  });
});

describe('approvals', () => {
  it('an attempt waits, is offered with the narrowest rule, and goes on when it is allowed', async () => {
    const { port } = await echoServer();
    const asked: string[] = [];
    const { names, connect: dial } = world(
      { otherwise: 'ask' },
      {
        ask: async ({ rule, name }) => {
          asked.push(`${name} ${rule}`);
          return 'allow';
        },
      },
    );
    names.set('new.example.org', ['127.0.0.1']);
    const programs = [dial({ name: 'new.example.org', port }), dial({ name: 'new.example.org', port })];
    for (const program of programs) {
      program.socket.end('x');
      expect(await textOf(program.socket)).toBe('XBYE');
    }
    expect(asked).toEqual([`new.example.org new.example.org:${port}`]);
  });

  it.each([
    ['is denied', async () => 'deny' as const],
    ['fails', async () => Promise.reject(new Error('gone'))],
    ['is never answered', () => new Promise<'allow'>(() => {})],
  ])('it is refused if the question %s', async (_how, ask) => {
    const { egress, sandbox, connect: dial } = world({ otherwise: 'ask' }, { ask, timeouts: { askMs: 50 } });
    expect(await dial({ name: 'new.example.org', port: 9 }).refused).toMatchObject({
      code: 'permission_denied',
      details: { reason: 'not_approved' },
    });
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'not_approved' });
  });

  it('a grant holds until it expires, and what it allowed is cut then', async () => {
    const { port } = await echoServer();
    let now = 1_000_000;
    const clock = { now: () => now, steady: () => performance.now(), ageing: () => now };
    const { egress, sandbox, names, connect: dial } = world({ otherwise: 'ask' }, { clock });
    names.set('new.example.org', ['127.0.0.1']);
    egress.grant(sandbox, `new.example.org:${port}`, now + 60_000);
    const program = dial({ name: 'new.example.org', port });
    await program.accepted;
    program.socket.write('x');
    await once(program.socket, 'data');
    now += 61_000;
    expect(await program.refused).toMatchObject({ details: { reason: 'policy_changed' } });
    expect(egress.grants(sandbox)).toEqual([]);
  });
});

describe('limits', () => {
  it('bounds connections at a time', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({ base: 'public', limits: { connections: 2 } });
    names.set('a.example.org', ['127.0.0.1']);
    const [one, two] = [dial({ name: 'a.example.org', port }), dial({ name: 'a.example.org', port })];
    await Promise.all([one.accepted, two.accepted]);
    expect(await dial({ name: 'a.example.org', port }).refused).toMatchObject({ code: 'resource_exhausted' });
    one.socket.destroy();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const three = dial({ name: 'a.example.org', port });
    await three.accepted;
    two.socket.destroy();
    three.socket.destroy();
  });

  it('bounds bytes of the sandbox and of a rule', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({
      allow: [{ to: `a.example.org:${port}`, limits: { bytesOut: 10 } }, `b.example.org:${port}`],
      limits: { bytesOut: 100 },
    });
    names.set('a.example.org', ['127.0.0.1']);
    names.set('b.example.org', ['127.0.0.1']);
    const a = dial({ name: 'a.example.org', port });
    a.socket.write('x'.repeat(11));
    expect(await a.refused).toMatchObject({ code: 'resource_exhausted' });
    expect(await dial({ name: 'a.example.org', port }).refused).toMatchObject({ code: 'resource_exhausted' });
    const b = dial({ name: 'b.example.org', port });
    b.socket.write('x'.repeat(50));
    await once(b.socket, 'data');
    b.socket.write('x'.repeat(50));
    expect(await b.refused).toMatchObject({ code: 'resource_exhausted' });
  });

  it('bounds the rate', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world({ base: 'public', limits: { bytesPerSecond: 100_000 } });
    names.set('slow.example.org', ['127.0.0.1']);
    const program = dial({ name: 'slow.example.org', port });
    const began = performance.now();
    program.socket.end('x'.repeat(50_000));
    expect((await textOf(program.socket)).length).toBe(50_003);
    expect(performance.now() - began).toBeGreaterThan(300);
  });

  it('bounds new names that only a glob allows', async () => {
    const { port } = await echoServer();
    const {
      names,
      resolved,
      connect: dial,
    } = world({
      allow: [`*.example.org:${port}`, `known.example.org:${port}`],
      limits: { namesPerMinute: 3 },
    });
    const reach = async (name: string) => {
      names.set(name, ['127.0.0.1']);
      const program = dial({ name, port });
      const result = await Promise.race([program.accepted, program.refused.then(({ code }) => code)]);
      program.socket.destroy();
      return result;
    };
    for (const name of ['a', 'b', 'c', 'a']) expect(await reach(`${name}.example.org`)).toBeUndefined();
    expect(await reach('secret-data.example.org')).toBe('resource_exhausted');
    expect(await reach('known.example.org')).toBeUndefined();
    expect(resolved).not.toContain('secret-data.example.org');
  });

  it('ends idle connections', async () => {
    const { port } = await echoServer();
    const { names, connect: dial } = world('public', { timeouts: { idleMs: 100 } });
    names.set('idle.example.org', ['127.0.0.1']);
    const program = dial({ name: 'idle.example.org', port });
    program.socket.write('x');
    expect(await program.refused).toMatchObject({ code: 'deadline_exceeded' });
  });
});

describe('lookups', () => {
  it('answer from the policy alone, with the ports to listen on', async () => {
    const { egress, sandbox, resolved } = world({ allow: ['db.example.org:5432', '*.wide.org:*'] });
    expect(await egress.lookup(sandbox, { name: 'DB.example.org.' })).toEqual({
      kind: 'address',
      ports: [80, 443, 5432],
    });
    expect(await egress.lookup(sandbox, { name: 'a.wide.org' })).toEqual({
      kind: 'address',
      ports: [80, 443],
      anyPort: true,
    });
    expect(await egress.lookup(sandbox, { name: 'denied.org' })).toEqual({
      kind: 'address',
      ports: [80, 443],
    });
    for (const name of [
      'localhost',
      'intranet',
      '',
      'x'.repeat(255),
      '127.0.0.1',
      'a..b',
      '4.3.2.1.in-addr.arpa',
    ])
      expect(await egress.lookup(sandbox, { name }), name).toEqual({ kind: 'absent' });
    expect(resolved).toEqual([]);
  });

  it('leave out ports that a layer above does not allow', async () => {
    const { egress, sandbox } = world([{ allow: ['db.example.org:5432,6379'] }, { allow: ['*:443,6379'] }]);
    expect(await egress.lookup(sandbox, { name: 'db.example.org' })).toEqual({
      kind: 'address',
      ports: [80, 443, 6379],
    });
  });
});

describe('plain HTTP', () => {
  async function site(): Promise<{ port: number; seen: string[] }> {
    const seen: string[] = [];
    const server = createHttpServer((message, response) => {
      seen.push(`${message.method} ${message.url} ${message.headers.host}`);
      if (message.url === '/gone') {
        message.socket.destroy();
        return;
      }
      if (message.url === '/redirect') response.setHeader('location', 'http://elsewhere.example.org/');
      textOf(message).then(
        (body) => response.end(`${message.method} ${message.url} ${body}`),
        () => response.destroy(),
      );
    });
    server.on('upgrade', (_message, socket: Duplex) => {
      socket.on('error', () => {});
      opened.push(() => socket.destroy());
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.on('data', (chunk: Buffer) => socket.write(chunk.toString().toUpperCase()));
    });
    return { port: await listen(server), seen };
  }

  it('is read request by request, also on other ports, and recorded', async () => {
    const { port, seen } = await site();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const headers = { host: `web.example.org:${port}`, 'content-type': 'text/plain' };
    const answer = await get(dial({ name: 'web.example.org', port }), {
      method: 'POST',
      path: '/a?b=c',
      headers,
      body: 'hello',
    });
    expect(answer).toMatchObject({ status: 200, body: 'POST /a?b=c hello' });
    expect(seen).toEqual([`POST /a?b=c web.example.org:${port}`]);
    expect(egress.attempts(sandbox)).toMatchObject([
      {
        protocol: 'http',
        method: 'POST',
        path: '/a',
        status: 200,
        verdict: 'allowed',
        address: '127.0.0.1',
        bytesOut: 5,
        open: false,
      },
    ]);
  });

  it('a Host that is not the name is refused', async () => {
    const { port, seen } = await site();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    for (const host of [
      'other.example.org',
      'web.example.org.evil.org',
      'web.example.org:1',
      '127.0.0.1',
      '',
    ]) {
      const answer = await get(dial({ name: 'web.example.org', port }), { headers: { host } });
      expect(answer.status, host).toBe(403);
    }
    expect(seen).toEqual([]);
    expect(egress.attempts(sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'name_mismatch' });
  });

  it('every request of a connection is decided', async () => {
    const { port, seen } = await site();
    const { names, connect: dial } = world({
      allow: [{ to: `web.example.org:${port}`, methods: ['GET'], paths: ['/ok'] }],
    });
    names.set('web.example.org', ['127.0.0.1']);
    const { socket } = dial({ name: 'web.example.org', port });
    const head = `Host: web.example.org:${port}\r\n`;
    socket.write(
      `GET /ok HTTP/1.1\r\n${head}\r\nGET /ok/2 HTTP/1.1\r\n${head}\r\nPOST /ok HTTP/1.1\r\n${head}Content-Length: 0\r\n\r\nGET /ok HTTP/1.1\r\n${head}\r\n`,
    );
    const text = await textOf(socket);
    expect(text.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 403']);
    expect(seen.map((line) => line.split(' ', 2).join(' '))).toEqual(['GET /ok', 'GET /ok/2']);
  });

  it.each([
    ['two lengths', 'POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 3\r\nContent-Length: 0\r\n\r\nabc'],
    [
      'length and chunks',
      'POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['an odd coding', 'POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n'],
    ['a space before the colon', 'GET / HTTP/1.1\r\nHost : H\r\n\r\n'],
    ['two hosts', 'GET / HTTP/1.1\r\nHost: H\r\nHost: evil.org\r\n\r\n'],
    ['no host', 'GET / HTTP/1.1\r\n\r\n'],
    ['a tunnel', 'CONNECT evil.org:443 HTTP/1.1\r\nHost: evil.org\r\n\r\n'],
    ['a foreign absolute form', 'GET http://evil.org/ HTTP/1.1\r\nHost: H\r\n\r\n'],
    ['empty lines and a foreign host', '\r\n\r\nGET / HTTP/1.1\r\nHost: evil.org\r\n\r\n'],
    ['a folded header', 'GET / HTTP/1.1\r\nHost: H\r\nX: a\r\n b\r\nHost: evil.org\r\n\r\n'],
    ['a bare line feed', 'GET / HTTP/1.1\nHost: evil.org\n\n'],
    [
      'a chunk that is no number',
      'POST / HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nGET / HTTP/1.1\r\nHost: evil.org\r\n\r\n',
    ],
  ])('%s never reaches the target as a request to another', async (_what, text) => {
    const raw: string[] = [];
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk) => {
        raw.push(chunk.toString());
        socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
      });
    });
    const port = await listen(server);
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const { socket } = dial({ name: 'web.example.org', port });
    socket.end(text.replaceAll(': H', `: web.example.org:${port}`));
    const answer = await textOf(socket).catch(() => '');
    expect(answer).not.toMatch(/^HTTP\/1.1 200/);
    expect(raw.join('')).not.toContain('evil.org');
  });

  it('chunked bodies are framed anew, whatever the method', async () => {
    const { port } = await site();
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    for (const method of ['GET', 'POST', 'DELETE']) {
      const { socket } = dial({ name: 'web.example.org', port });
      socket.write(
        `${method} /x HTTP/1.1\r\nHost: web.example.org:${port}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n`,
      );
      expect(await textOf(socket)).toContain(`${method} /x body`);
    }
  });

  it('the absolute form of the same server is taken', async () => {
    const { port, seen } = await site();
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const { socket } = dial({ name: 'web.example.org', port });
    socket.write(
      `GET http://web.example.org:${port}/x?y HTTP/1.1\r\nHost: web.example.org:${port}\r\nConnection: close\r\n\r\n`,
    );
    expect(await textOf(socket)).toContain('GET /x?y');
    expect(seen).toEqual([`GET /x?y web.example.org:${port}`]);
  });

  it('upgrades are carried', async () => {
    const { port } = await site();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const { socket, refused } = dial({ name: 'web.example.org', port });
    socket.write(
      `GET /ws HTTP/1.1\r\nHost: web.example.org:${port}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n`,
    );
    expect(String((await once(socket, 'data'))[0])).toContain('101 Switching Protocols');
    socket.write('ping');
    expect(String((await once(socket, 'data'))[0])).toBe('PING');
    egress.policies.set(sandbox, ['none']);
    expect(await refused).toMatchObject({ details: { reason: 'policy_changed' } });
  });

  it('explains a refusal in the form that is accepted', async () => {
    const { egress, sandbox, connect: dial } = world('packages');
    const ask = (accept?: string) =>
      get(dial({ name: 'example.org', port: 80 }), {
        path: '/x',
        headers: { host: 'example.org', ...(accept && { accept }) },
      });
    const rule = `cay net allow ${sandbox} example.org:80`;
    const plain = await ask();
    expect(plain).toMatchObject({ status: 403, body: expect.stringContaining(rule) as string });
    expect(plain.statusText).toContain(rule);
    const json = await ask('application/json');
    expect(JSON.parse(json.body)).toMatchObject({
      code: 'CAY_NETWORK',
      reason: 'no_rule',
      suggestion: 'example.org:80',
    });
    expect((await ask('text/html,*/*')).headers['content-type']).toContain('text/html');
    expect(egress.attempts(sandbox)).toHaveLength(3);
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      verdict: 'denied',
      reason: 'no_rule',
      name: 'example.org',
    });
  });

  it('explains that a target does not answer', async () => {
    const { names, connect: dial } = world('public');
    const { port } = await site();
    names.set('web.example.org', ['127.0.0.1']);
    const gone = await get(dial({ name: 'web.example.org', port }), {
      path: '/gone',
      headers: { host: 'web.example.org' },
    });
    expect(gone.status).toBe(502);
    const absent = await get(dial({ name: 'absent.example.org', port: 80 }), {
      headers: { host: 'absent.example.org' },
    });
    expect(absent.status).toBe(502);
    expect(absent.body).toContain('cannot be resolved');
  });

  it('requests under way are cut when the policy changes', async () => {
    const server = createHttpServer((_message, response) => void response.write('begun'));
    const port = await listen(server);
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const program = dial({ name: 'web.example.org', port });
    program.socket.write(`GET / HTTP/1.1\r\nHost: web.example.org:${port}\r\n\r\n`);
    await once(program.socket, 'data');
    egress.policies.set(sandbox, [{ allow: [{ to: `web.example.org:${port}`, methods: ['POST'] }] }]);
    expect(await program.refused).toMatchObject({ details: { reason: 'policy_changed' } });
  });
});

describe('a program that goes away', () => {
  it('leaves nothing behind', async () => {
    const { port, sockets } = await echoServer();
    const { egress, sandbox, names, connect: dial } = world('public');
    names.set('a.example.org', ['127.0.0.1']);
    for (let round = 0; round < 20; round++) {
      const program = dial({ name: 'a.example.org', port });
      if (round % 3 > 0) await program.accepted;
      if (round % 3 > 1) program.socket.write('GET / HT');
      program.socket.destroy(round % 2 ? new Error('gone') : undefined);
    }
    await vi.waitFor(() => expect(egress.stats(sandbox)!.connections).toBe(0));
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true));
  });
});
