import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import type { Sandbox } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let sandbox: Sandbox;
let token: string;

beforeAll(async () => {
  test = await startTestServer({ previewDomains: ['preview.example.com'] });
  sandbox = await test.create({ ports: [3000, { port: 3001, visibility: 'public' }] });
  token = sandbox.ports[0]!.token!;
  for (const port of [3000, 3001])
    await test.call('POST', `/v1/sandboxes/${sandbox.id}/commands`, {
      body: { argv: ['http-server', String(port)] },
    });
});
afterAll(() => test[Symbol.asyncDispose]());

interface GuestCall {
  status: number;
  headers: IncomingMessage['headers'];
  text: string;
  seen: { method: string; url: string; headers: Record<string, string>; body: string };
}

/** Sends a Host header, which `fetch` does not allow. */
async function visit(
  path: string,
  options: { host?: string; headers?: Record<string, string>; method?: string; body?: string } = {},
): Promise<GuestCall> {
  const { hostname, port } = new URL(test.server.url);
  const host = options.host ?? `3000-${sandbox.id.slice(4)}.preview.example.com`;
  const request = httpRequest({
    hostname,
    port,
    path,
    method: options.method ?? 'GET',
    headers: { host, ...options.headers },
  });
  request.end(options.body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response) text += String(chunk);
  const json = response.headers['content-type']?.includes('json')
    ? (JSON.parse(text) as GuestCall['seen'])
    : undefined;
  return { status: response.statusCode!, headers: response.headers, text, seen: json! };
}

describe('a preview', () => {
  it('whose application reads nothing of a body holds up no other request of the connection', async () => {
    const box = await test.create({ ports: [{ port: 3002, visibility: 'public' }] });
    await test.call('POST', `/v1/sandboxes/${box.id}/commands`, { body: { argv: ['early-server', '3002'] } });
    const { hostname, port } = new URL(test.server.url);
    for (const framing of ['Content-Length: 1048576', 'Transfer-Encoding: chunked']) {
      const socket = connect({ host: hostname, port: Number(port) });
      let text = '';
      let asked = false;
      socket.on('error', () => {});
      socket.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        if (asked) return;
        asked = true;
        socket.write('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n');
      });
      const body = Buffer.alloc(1_048_576, 'x');
      const isChunked = framing.startsWith('Transfer');
      socket.write(
        `POST / HTTP/1.1\r\nHost: 3002-${box.id.slice(4)}.preview.example.com\r\n${framing}\r\n\r\n`,
      );
      socket.write(
        isChunked ? Buffer.concat([Buffer.from('100000\r\n'), body, Buffer.from('\r\n0\r\n\r\n')]) : body,
      );
      // It is answered, or the connection is closed.
      await expect
        .poll(() => socket.destroyed || text.split('HTTP/1.1 200').length === 3, { timeout: 5_000 })
        .toBe(true);
      // The application may hang up before it has answered.
      expect(text).toMatch(/^HTTP\/1\.1 (?:200|502)/);
      socket.destroy();
    }
  });

  it('has an address of its own that is shown with the sandbox', () => {
    expect(new URL(sandbox.ports[0]!.url).hostname).toBe(`3000-${sandbox.id.slice(4)}.preview.example.com`);
    expect(sandbox.ports[1]).not.toHaveProperty('token');
  });

  it('is open to all if it is public, by host and by path', async () => {
    const host = `3001-${sandbox.id.slice(4)}.localhost:7070`;
    expect((await visit('/deep/page?q=1', { host })).seen).toMatchObject({
      method: 'GET',
      url: '/deep/page?q=1',
    });
    expect((await visit(`/preview/${sandbox.id}/3001/deep/page?q=1`, { host: 'localhost' })).seen.url).toBe(
      '/deep/page?q=1',
    );
  });

  it('that is private looks the same as none at all, without its token', async () => {
    const missing = await visit('/');
    const absent = await visit('/', { host: `3999-${sandbox.id.slice(4)}.preview.example.com` });
    expect([missing.status, missing.text]).toEqual([absent.status, absent.text]);
    expect(missing.status).toBe(404);
  });

  it('answers a browser with a page and other clients with JSON', async () => {
    const browser = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
    const missing = await visit('/<script>?cay_token=<script>', { headers: browser });
    expect([missing.status, missing.headers['content-type']]).toEqual([404, 'text/html; charset=utf-8']);
    expect(missing.text).toContain('token');
    expect(missing.text).not.toMatch(/<script|http-equiv|src=|href=/);
    expect(missing.headers['content-security-policy']).toMatch(/^default-src 'none'/);
    const absent = await visit('/', {
      host: `3999-${sandbox.id.slice(4)}.preview.example.com`,
      headers: browser,
    });
    expect(absent.text).toBe(missing.text);
    for (const accept of ['*/*', 'application/json'])
      expect((await visit('/', { headers: { accept } })).headers['content-type']).toBe('application/json');
  });

  it('lets a browser try again where nothing listens yet, for a while', async () => {
    await test.call('PUT', `/v1/sandboxes/${sandbox.id}/ports/3002`, { body: { visibility: 'public' } });
    const host = `3002-${sandbox.id.slice(4)}.preview.example.com`;
    const headers = { accept: 'text/html' };
    const first = await visit('/', { host, headers });
    expect(first.status).toBe(503);
    expect(first.text).toContain('<meta http-equiv="refresh" content="2">');
    expect(first.text).toContain('port 3002');
    expect(first.headers['set-cookie']![0]).toMatch(/^cay_retry=1; Path=\/; HttpOnly/);
    const last = await visit('/', { host, headers: { ...headers, cookie: 'cay_retry=30' } });
    expect(last.text).not.toContain('http-equiv="refresh"');
    expect(last.headers['set-cookie']).toBeUndefined();
    expect((await visit('/', { host })).headers['content-type']).toBe('application/json');
  });

  it('has one address that opens when it is clicked', async () => {
    const { ports } = (await test.call('GET', `/v1/sandboxes/${sandbox.id}`)).json;
    const [own, open] = [3000, 3001].map((port) =>
      ports.find((each: { port: number }) => each.port === port),
    );
    expect(open.openUrl).toBe(open.url);
    const { pathname, search } = new URL(own.openUrl);
    const opened = await visit(pathname + search);
    expect([opened.status, opened.headers.location]).toEqual([302, '/']);
    expect((await test.call('GET', '/v1/events')).text).not.toContain(own.token);
  });

  it('takes the token in a header', async () => {
    expect((await visit('/', { headers: { 'x-cay-preview-token': token } })).status).toBe(200);
  });

  it('turns a token in the address into a cookie and goes on without it', async () => {
    const first = await visit(`/page?a=1&cay_token=${token}&b=2`);
    expect(first.status).toBe(302);
    expect(first.headers.location).toBe('/page?a=1&b=2');
    const cookie = first.headers['set-cookie']![0]!;
    expect(cookie).toMatch(/^cay_preview=.*; Path=\/; HttpOnly; SameSite=Lax/);
    const second = await visit('/page', { headers: { cookie: `${cookie.split(';')[0]}; theirs=1` } });
    expect(second.status).toBe(200);
    expect(second.seen.headers.cookie).toBe('theirs=1');
  });

  it('gives no cookie for a wrong token', async () => {
    const { status, headers } = await visit('/?cay_token=wrong');
    expect(status).toBe(404);
    expect(headers['set-cookie']).toBeUndefined();
  });

  it('confines the cookie, redirects and the page itself when it is reached by path', async () => {
    const { headers } = await visit(`/preview/${sandbox.id}/3000?cay_token=${token}`, { host: 'localhost' });
    expect(headers.location).toBe(`/preview/${sandbox.id}/3000/`);
    expect(headers['set-cookie']![0]).toContain(`Path=/preview/${sandbox.id}/3000/;`);
    const page = await visit(`/preview/${sandbox.id}/3000/`, {
      host: 'localhost',
      headers: { 'x-cay-preview-token': token },
    });
    expect(page.headers['content-security-policy']).toMatch(/^sandbox /);
    expect(page.headers['set-cookie']).toEqual([`session=1; Path=/preview/${sandbox.id}/3000/`]);
  });

  it('never passes our keys, tokens and cookies on', async () => {
    const { seen } = await visit('/', {
      headers: {
        'x-cay-preview-token': token,
        authorization: `Bearer ${test.alice}`,
        'x-api-key': test.alice,
        cookie: `cay_preview=${token}; cay_other=1`,
        referer: `http://x/?cay_token=${token}`,
        connection: 'x-hop',
        'x-hop': 'gone',
      },
    });
    const text = JSON.stringify(seen);
    for (const secret of [token, test.alice, 'x-hop', 'cay_']) expect(text).not.toContain(secret);
    expect(seen.headers).toMatchObject({
      'x-forwarded-proto': 'http',
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-host': expect.stringContaining('preview.example.com'),
    });
  });

  it('passes the application’s own credentials and bodies on', async () => {
    const { seen } = await visit('/', {
      method: 'POST',
      body: 'payload',
      headers: { 'x-cay-preview-token': token, authorization: 'Basic dXNlcg==', 'x-api-key': 'theirs' },
    });
    expect(seen).toMatchObject({
      method: 'POST',
      body: 'payload',
      headers: { authorization: 'Basic dXNlcg==', 'x-api-key': 'theirs' },
    });
  });

  it('keeps the application from setting our cookies or others’', async () => {
    const { headers } = await visit('/', { headers: { 'x-cay-preview-token': token } });
    expect(headers['set-cookie']).toEqual(['session=1; Path=/']);
  });

  it('never reaches the API, however the name is written', async () => {
    for (const label of [
      `3000-${sandbox.id.slice(4)}`,
      '3000-short',
      '99999-aaaaaaaaaaaaaaaaaaaa',
      `3000-${sandbox.id.slice(4)}.deeper`,
    ]) {
      for (const domain of ['preview.example.com', 'localhost', 'LOCALHOST.']) {
        const { status } = await visit('/healthz', {
          host: `${label}.${domain}`,
          headers: { authorization: `Bearer ${test.admin}` },
        });
        expect(status, `${label}.${domain}`).toBe(404);
      }
    }
    expect((await visit('/preview/nonsense/1/', { host: 'localhost' })).status).toBe(404);
    expect((await visit('/healthz', { host: 'localhost' })).status).toBe(200);
  });

  it('carries WebSockets', async () => {
    const url = `${test.server.url.replace('http', 'ws')}/preview/${sandbox.id}/3000/socket`;
    const socket = new WebSocket(url, { headers: { 'x-cay-preview-token': token } });
    await once(socket, 'open');
    socket.send('echo');
    const [data] = (await once(socket, 'message')) as [Buffer];
    expect(data.toString()).toBe('echo');
    socket.terminate();
    const refused = new WebSocket(url);
    const [, response] = (await once(refused, 'unexpected-response')) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(404);
    response.destroy();
  });

  it('says when the application or the sandbox does not run', async () => {
    const other = await test.create({ ports: [{ port: 1, visibility: 'public' }] });
    const path = `/preview/${other.id}/1/`;
    expect((await visit(path, { host: 'localhost' })).status).toBe(503);
    await test.call('POST', `/v1/sandboxes/${other.id}/stop`);
    expect((await visit(path, { host: 'localhost' })).status).toBe(503);
    await test.call('DELETE', `/v1/sandboxes/${other.id}/ports/1`);
    expect((await visit(path, { host: 'localhost' })).status).toBe(404);
  });
});
