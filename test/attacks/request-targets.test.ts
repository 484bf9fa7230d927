/**
 * Requests without a key whose targets, hosts and framings HTTP does not allow.
 *
 * Runs on the memory backend alone: what is tried is refused before any sandbox is reached.
 */
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { signatureOf } from '../../server/src/api/e2b/access-tokens.ts';
import { exchange } from './support/exchange.ts';
import { startTarget, type Target } from './support/target.ts';

const NOBODY = 'a'.repeat(20);
const TARGETS = [
  '//',
  '/\\',
  '//[',
  '///',
  'http://%zz',
  '//a:99999/',
  '*',
  'http://localhost/healthz',
  '//evil/?cay_token=x',
];
const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];

let target: Target;
let made: { sandboxID: string; envdAccessToken: string };
beforeAll(async () => {
  target = await startTarget({ backend: 'memory', flags: ['--log-level', 'debug'] });
  made = (await target.alice.call('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 3600 } }))
    .json;
}, 60_000);
afterAll(() => target?.[Symbol.asyncDispose]());
afterEach(() => target.requireAlive());

const send = (lines: string[], body = '', from?: string) =>
  exchange(`${lines.join('\r\n')}\r\n\r\n${body}`, {
    host: target.host,
    port: target.port,
    ...(from !== undefined && { from }),
  });

describe('a request without a key', () => {
  it('whose target is no path gets one clear 400, on every plane', async () => {
    const planes = [
      ['Host: x'],
      ['Host: x', `E2b-Sandbox-Id: ${NOBODY}`],
      ['Host: x', `E2b-Sandbox-Id: ${made.sandboxID}`],
      [`Host: 49983-${NOBODY}.localhost`],
      [`Host: 49983-${made.sandboxID}.localhost`],
      ['Host: api.localhost', 'Origin: http://evil'],
    ];
    for (const path of TARGETS) {
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        for (const plane of planes) {
          const { status } = await send([`${method} ${path} HTTP/1.1`, ...plane, 'Connection: close']);
          expect(status, `${method} ${path} ${plane.join(' ')}`).toBe(400);
        }
      }
    }
  });

  it('to be upgraded, or for a port, with such a target is answered too', async () => {
    const planes = [
      ['Host: x'],
      ['Host: x', `E2b-Sandbox-Id: ${NOBODY}`, 'E2b-Sandbox-Port: 3000'],
      ['Host: x', `E2b-Sandbox-Id: ${made.sandboxID}`, 'E2b-Sandbox-Port: 3000'],
      [`Host: 3000-${made.sandboxID}.localhost`],
      [`Host: 49983-${made.sandboxID}.localhost`],
    ];
    for (const path of [...TARGETS, `/preview/sbx_${made.sandboxID}/3000//`, '/preview//[']) {
      for (const plane of planes) {
        for (const upgrade of [[], UPGRADE]) {
          const { status } = await send([`GET ${path} HTTP/1.1`, ...plane, ...upgrade]);
          expect([302, 400, 401, 403, 404, 502, 503], `${path} ${plane.join(' ')} ${upgrade[0]}`).toContain(
            status,
          );
        }
      }
    }
  });

  it('that hangs up on an upgrade that was refused affects no other connection', async () => {
    for (let times = 0; times < 50; times++) {
      const socket = connect(target.port, target.host);
      socket.on('error', () => {});
      socket.write(['GET / HTTP/1.1', `Host: 49983-${NOBODY}.localhost`, ...UPGRADE, '', ''].join('\r\n'));
      await new Promise((resolve) => setTimeout(resolve, 2));
      socket.resetAndDestroy();
    }
  });

  it('to a host that looks like a preview never reaches the API or another port', async () => {
    const bare = made.sandboxID;
    const hosts = [
      `3000-${bare}.localhost.`,
      `3000-${bare.toUpperCase()}.LOCALHOST`,
      `3000-${bare}.localhost:99999`,
      `0003000-${bare}.localhost`,
      `99999-${bare}.localhost`,
      `3000-${bare}.x.localhost`,
      `-1-${bare}.localhost`,
    ];
    for (const host of hosts) {
      const { status, text } = await send([
        'GET /healthz HTTP/1.1',
        `Host: ${host}`,
        `Authorization: Bearer ${target.alice.key}`,
      ]);
      if (/^\d/.test(host)) expect(text, host).not.toContain('"alive"');
      expect(status, host).not.toBe(500);
    }
    const two = await send(['GET /healthz HTTP/1.1', 'Host: localhost', `Host: 3000-${bare}.localhost`]);
    expect(two.status).toBe(400);
    const absolute = await send([`GET http://localhost/healthz HTTP/1.1`, `Host: 3000-${bare}.localhost`]);
    expect(absolute.status).toBe(400);
  });

  it('learns no difference between a sandbox that does not exist and one that is another’s', async () => {
    for (let times = 0; times < 20; times++) {
      const id = Array.from(
        { length: 20 },
        () => 'abcdefghijklmnopqrstuvwxyz0123456789'[Math.floor(Math.random() * 36)],
      ).join('');
      expect((await send(['GET /health HTTP/1.1', `Host: 49983-${id}.localhost`])).status).toBe(502);
    }
    expect((await send(['GET /health HTTP/1.1', `Host: 49983-${made.sandboxID}.localhost`])).status).toBe(
      204,
    );
  });

  it('with two lengths, an unknown coding or an upgrade with a body gets one 400', async () => {
    const framings = [
      ['Content-Length: 5', 'Transfer-Encoding: chunked'],
      ['Content-Length: 5', 'Content-Length: 5'],
      ['Content-Length: 5', 'Content-Length: 6'],
      ['Transfer-Encoding: chunked, identity'],
      ['Transfer-Encoding: gzip, chunked'],
      ['Content-Length: 5', ...UPGRADE],
      ['Transfer-Encoding: chunked', ...UPGRADE],
    ];
    for (const framing of framings) {
      const { text } = await send(
        ['POST / HTTP/1.1', `Host: 3000-${made.sandboxID}.localhost`, ...framing],
        '0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n',
      );
      expect(text.match(/^HTTP\/1\.1 \d+/gm), framing.join(' ')).toEqual(['HTTP/1.1 400']);
    }
  });
});

describe('labels of E2B’s clients', () => {
  it('cannot be set or changed by our own API', async () => {
    const labels = {
      'e2b/auto-resume': 'true',
      'e2b/public-traffic': 'true',
      'e2b/mask-request-host': 'a\u0100b',
    };
    const own = await target.alice.create();
    expect((await target.alice.call('PATCH', `/v1/sandboxes/${own.id}`, { body: { labels } })).status).toBe(
      400,
    );
    expect((await target.alice.call('POST', '/v1/sandboxes', { body: { labels } })).status).toBe(400);
    expect(
      (await target.alice.call('POST', `/v1/sandboxes/${own.id}/fork`, { body: { labels } })).status,
    ).toBe(400);
    const theirs = (await target.alice.call('GET', `/v1/sandboxes/sbx_${made.sandboxID}`)).json
      .labels as Record<string, string>;
    const again = { ...theirs, owner: 'me' };
    expect(
      (await target.alice.call('PATCH', `/v1/sandboxes/sbx_${made.sandboxID}`, { body: { labels: again } }))
        .status,
    ).toBe(200);
  });
});

describe('signed addresses', () => {
  it('open while a client without a key floods the search for the signer', async () => {
    const signed = (path: string) =>
      `/files?path=${path}&signature=${encodeURIComponent(signatureOf(made.envdAccessToken, { path, operation: 'read', user: '' }))}`;
    await target.alice.call('PUT', `/v1/sandboxes/sbx_${made.sandboxID}/files?path=/home/user/a`, {
      body: 'first',
    });
    await target.alice.call('PUT', `/v1/sandboxes/sbx_${made.sandboxID}/files?path=/home/user/b`, {
      body: 'second',
    });
    const get = (path: string, from?: string) =>
      send([`GET ${path} HTTP/1.1`, 'Host: localhost', 'Connection: close'], '', from);
    expect((await get(signed('/home/user/a'))).text).toContain('first');
    const statuses: (number | undefined)[] = [];
    const startedMs = performance.now();
    for (let at = 0; at < 300; at++)
      statuses.push((await get(`/files?path=x&signature=v1_${String(at).padStart(43, 'A')}`)).status);
    expect(new Set(statuses)).toEqual(new Set([401, 429]));
    // So many searches at once, and so many more in a second: see "signed-by.ts".
    const most = 40 + (20 * (performance.now() - startedMs)) / 1000;
    expect(statuses.filter((status) => status === 401).length).toBeLessThanOrEqual(most + 1);
    // One that was opened before, from the same address, and one that never was, from another.
    expect((await get(signed('/home/user/a'))).text).toContain('first');
    expect((await get(signed('/home/user/b'), '127.0.0.2')).text).toContain('second');
  });

  it('stand in no log, nor do tokens', async () => {
    const signature = signatureOf(made.envdAccessToken, { path: 'secret', operation: 'write', user: '' });
    const upload = await target.alice.call('POST', '/v3/templates', { body: { name: 'logged' } });
    const link = await target.alice.call(
      'GET',
      `/templates/${upload.json.templateID}/files/${'0'.repeat(64)}`,
    );
    const address = new URL(link.json.url as string);
    await target.stranger('PUT', address.pathname + address.search, { body: 'x' });
    await target.stranger('POST', `/files?path=secret&signature=${encodeURIComponent(signature)}`, {
      body: 'x',
    });
    await target.stranger('POST', `/files?path=secret&%73ignature=${encodeURIComponent(signature)}`, {
      body: 'x',
    });
    await target.stranger(
      'GET',
      `/files?path=secret&token=${made.envdAccessToken}&x=${made.envdAccessToken}`,
    );
    const log = target.log();
    expect(log).toContain('/files?path=secret');
    for (const secret of [
      signature,
      encodeURIComponent(signature),
      address.searchParams.get('signature')!,
      made.envdAccessToken,
    ])
      expect(log, secret).not.toContain(secret);
  });
});
