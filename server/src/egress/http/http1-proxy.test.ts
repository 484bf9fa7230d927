import { once } from 'node:events';
import { createServer as createHttpServer, request as httpRequest } from 'node:http';
import { createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../test/support/kept-bytes.ts';
import { type Program, textOf } from '../testing/program.ts';
import { listen, opened, world } from '../testing/servers.ts';

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

  it('chunked bodies are framed again by the proxy, whatever the method', async () => {
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

  it.each([
    ['status 000', 'HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n'],
    ['status 099', 'HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n'],
    ['a control character in its reason', 'HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n'],
    ['a switch of protocols', 'HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'],
  ])('a target that answers with %s is a 502, and nothing is left uncaught', async (_what, text) => {
    const caught: unknown[] = [];
    const onCaught = (error: unknown) => caught.push(error);
    process.on('uncaughtException', onCaught);
    opened.push(() => process.off('uncaughtException', onCaught));
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(text));
    });
    const port = await listen(server);
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const program = dial({ name: 'web.example.org', port });
    const answer = await get(program, { headers: { host: `web.example.org:${port}` } });
    expect([answer.status, caught]).toEqual([502, []]);
  });

  it('keeps the beginning of a path in its record, and not all that was sent', async () => {
    const port = await listen(
      createHttpServer({ maxHeaderSize: 70_000 }, (_message, response) => void response.end('x')),
    );
    const { names, connect: dial } = world('public');
    names.set('web.example.org', ['127.0.0.1']);
    const ask = async (count: number) => {
      for (let index = 0; index < count; index++)
        await get(dial({ name: 'web.example.org', port }), {
          path: `/${String(index).padEnd(60_000, 'x')}`,
          headers: { host: `web.example.org:${port}` },
        });
    };
    await ask(20);
    expect((await keptBytes(() => ask(100))) / 100).toBeLessThan(30_000);
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
    expect(egress.attempts(sandbox)[0]).toMatchObject({
      method: 'GET',
      verdict: 'denied',
      reason: 'policy_changed',
    });
  });
});

describe('requests that come without waiting for answers', () => {
  it('are cut off beyond a number, whatever the target does', async () => {
    const server = createServer((socket) => void socket.on('error', () => {}).resume());
    const port = await listen(server);
    const { names, egress, sandbox, connect: dial } = world({ allow: [`web.example.org:${port}`] });
    names.set('web.example.org', ['127.0.0.1']);
    const program = dial({ name: 'web.example.org', port });
    const one = `GET / HTTP/1.1\r\nHost: web.example.org:${port}\r\n\r\n`;
    program.socket.write(one.repeat(5000));
    const error = await program.refused;
    expect(error).toMatchObject({ code: 'resource_exhausted', details: { reason: 'limit' } });
    expect(egress.attempts(sandbox).length).toBeLessThan(200);
    expect(egress.stats(sandbox)!.connections).toBe(0);
  });
});
