import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';
import { exchange } from './support/exchange.ts';
import { onEachPlatform } from './support/platforms.ts';
import { startRawApplication, type RawApplication } from './support/raw-application.ts';

const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];

onEachPlatform('ports of E2B’s sandboxes', (platform) => {
  let server: TestServer;
  let dispose: () => Promise<void>;
  let application: RawApplication;
  let made: { sandboxID: string; envdAccessToken: string; trafficAccessToken: string };
  let other: typeof made;
  beforeAll(async () => {
    const opened = await platform.open();
    ({ dispose } = opened);
    server = await startTestServer({ backend: opened.backend });
    const create = async () =>
      (await server.call('POST', '/v2/sandboxes', { body: { templateID: 'base' } })).json;
    made = await create();
    other = await create();
    application = await startRawApplication(server, `sbx_${made.sandboxID}`, [3000, 4000, 49_999]);
  }, 120_000);
  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
    await dispose?.();
  }, 60_000);
  beforeEach(async () => void (await application.seen()));

  function send(lines: string[]) {
    const { hostname, port } = new URL(server.server.url);
    return exchange(`${lines.join('\r\n')}\r\n\r\n`, { host: hostname, port: Number(port) });
  }

  const byHost = (port: number, path = '/') => [
    `GET ${path} HTTP/1.1`,
    `Host: ${port}-${made.sandboxID}.localhost`,
  ];
  const byHeader = (port: number | string, path = '/') => [
    `GET ${path} HTTP/1.1`,
    'Host: localhost',
    `E2b-Sandbox-Id: ${made.sandboxID}`,
    `E2b-Sandbox-Port: ${port}`,
  ];
  const byPath = (port: number) => [
    `GET /preview/sbx_${made.sandboxID}/${port}/ HTTP/1.1`,
    'Host: localhost',
  ];

  describe('the port of the code interpreter', () => {
    it('wants a token of its sandbox, by host and by header', async () => {
      for (const way of [byHost(49_999, '/execute'), byHeader(49_999, '/execute')]) {
        const wrong = [
          [],
          [`X-Access-Token: ${other.envdAccessToken}`],
          [`E2b-Traffic-Access-Token: ${other.trafficAccessToken}`],
          ['X-Access-Token: x'],
        ];
        for (const headers of wrong) {
          for (const upgrade of [[], UPGRADE]) {
            const { status } = await send([...way, ...headers, ...upgrade]);
            expect(status, `${way.join(' ')} ${headers.join()}`).toBe(403);
          }
        }
      }
      expect(await application.seen()).toEqual([]);
      for (const way of [byHost(49_999), byHeader(49_999)]) {
        expect((await send(way)).status).toBe(403);
        expect((await send([...way, `X-Access-Token: ${made.envdAccessToken}`])).status).toBe(200);
        expect((await send([...way, `E2b-Traffic-Access-Token: ${made.trafficAccessToken}`])).status).toBe(
          200,
        );
      }
    });

    it('leaves other ports open, as their maker wished', async () => {
      expect((await send(byHost(4000))).status).toBe(200);
      expect((await send(byHeader(4000))).status).toBe(200);
    });
  });

  describe('a port that was made private', () => {
    it('is private by host, by header and by path, for requests and upgrades', async () => {
      const exposed = await server.call('PUT', `/v1/sandboxes/sbx_${made.sandboxID}/ports/3000`, {
        body: { visibility: 'private' },
      });
      for (const way of [byHost(3000), byHeader(3000), byPath(3000), byHeader('03000')]) {
        for (const headers of [
          [],
          ['X-Cay-Preview-Token: x'],
          [`E2b-Traffic-Access-Token: ${other.trafficAccessToken}`],
        ]) {
          expect((await send([...way, ...headers])).status, way.join(' ')).toBe(404);
          expect((await send([...way, ...headers, ...UPGRADE])).status, way.join(' ')).toBe(404);
        }
      }
      expect(await application.seen()).toEqual([]);
      for (const way of [byHost(3000), byHeader(3000), byPath(3000)])
        expect((await send([...way, `X-Cay-Preview-Token: ${exposed.json.token}`])).status).toBe(200);
    });
  });

  describe('a host that an application is told it has', () => {
    it.each([
      ['inner.example:${PORT}', 'inner.example:4000'],
      ['$' + '{PORT', undefined],
      ['{}', undefined],
    ])('is %s only if that is a host', async (maskRequestHost, told) => {
      const body = { templateID: 'base', network: { maskRequestHost } };
      const { sandboxID } = (await server.call('POST', '/v2/sandboxes', { body })).json;
      const masked = await startRawApplication(server, `sbx_${sandboxID}`, [4000]);
      const host = `4000-${sandboxID}.localhost`;
      expect((await send(['GET / HTTP/1.1', `Host: ${host}`])).status).toBe(200);
      expect((await send(['GET / HTTP/1.1', `Host: ${host}`, ...UPGRADE])).status).toBe(200);
      expect((await masked.seen()).join('').match(/^host: .*(?=\r)/gim)).toEqual([
        `Host: ${told ?? host}`,
        `Host: ${told ?? host}`,
      ]);
    });
  });
});
