import type { Sandbox } from '@cay/sdk/protocol';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../server/src/api/testing/test-server.ts';
import { Agent, request } from 'node:http';
import { exchange } from './support/exchange.ts';
import { onEachPlatform } from './support/platforms.ts';
import { SCALE } from './support/scale.ts';
import { percentile } from './support/with-neighbour.ts';
import { startRawApplication, type RawApplication } from './support/raw-application.ts';

const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
];
/** How long an application may take until its answer begins. */
const ANSWER_MS = 600;
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi';

onEachPlatform('previews', (platform) => {
  let server: TestServer;
  let dispose: () => Promise<void>;
  let sandbox: Sandbox;
  let bare: string;
  let token: string;
  let e2b: { sandboxID: string; envdAccessToken: string; trafficAccessToken: string };
  let applications: RawApplication[];
  beforeAll(async () => {
    const opened = await platform.open();
    ({ dispose } = opened);
    server = await startTestServer({
      backend: opened.backend,
      previewAnswerMs: ANSWER_MS,
      previewConnections: 20,
    });
    sandbox = await server.create({ ports: [3000, { port: 3001, visibility: 'public' }] });
    bare = sandbox.id.slice(4);
    token = sandbox.ports[0]!.token!;
    e2b = (await server.call('POST', '/v2/sandboxes', { body: { templateID: 'base' } })).json;
    applications = await Promise.all(
      [sandbox.id, `sbx_${e2b.sandboxID}`].map((id) => startRawApplication(server, id, [3000, 3001, 4000])),
    );
  }, 120_000);
  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
    await dispose?.();
  }, 60_000);
  beforeEach(async () => {
    await Promise.all(applications.map((application) => application.answers(OK)));
    await seen();
  });

  /** What both applications answer. */
  const answers = async (pieces: string | readonly string[], options?: { hangs: boolean }) => {
    await Promise.all(applications.map((application) => application.answers(pieces, options)));
  };
  /** What either of them has seen. */
  const seen = async () => (await Promise.all(applications.map((application) => application.seen()))).flat();

  function send(lines: string[], body = '') {
    const { hostname, port } = new URL(server.server.url);
    return exchange(`${lines.join('\r\n')}\r\n\r\n${body}`, {
      host: hostname,
      port: Number(port),
      timeoutMs: 4_000,
      quietMs: 30,
    });
  }

  /** Every way in to a port that answers. */
  const WAYS: Record<string, () => string[]> = {
    'a public preview by host': () => ['GET / HTTP/1.1', `Host: 3001-${bare}.localhost`],
    'a private preview by host': () => [
      'GET / HTTP/1.1',
      `Host: 3000-${bare}.localhost`,
      `X-Cay-Preview-Token: ${token}`,
    ],
    'a preview by path': () => [`GET /preview/${sandbox.id}/3001/ HTTP/1.1`, 'Host: localhost'],
    'a port of E2B’s by host': () => ['GET / HTTP/1.1', `Host: 4000-${e2b.sandboxID}.localhost`],
    'a port of E2B’s by header': () => [
      'GET / HTTP/1.1',
      'Host: x',
      `E2b-Sandbox-Id: ${e2b.sandboxID}`,
      'E2b-Sandbox-Port: 4000',
    ],
  };

  describe.each(Object.entries(WAYS))('an application behind %s', (_name, way) => {
    const bad: Record<string, string | string[]> = {
      'status 000': 'HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n',
      'status 099': 'HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n',
      'status 600': 'HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n',
      'status 999': 'HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n',
      'endless 100 Continue': Array.from({ length: 2000 }, () => 'HTTP/1.1 100 Continue\r\n\r\n'),
      '1 MiB of headers': [
        'HTTP/1.1 200 OK\r\n',
        ...Array.from({ length: 1024 }, () => `X-Y: ${'y'.repeat(1000)}\r\n`),
        '\r\n',
      ],
      'two framings': 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'no HTTP': 'SSH-2.0-x\r\n',
      nothing: '',
      'half a status line': 'HTTP/1.1 20',
    };
    it.each(Object.entries(bad))('that answers with %s gives its visitor a 502', async (_what, answer) => {
      await answers(answer);
      const replies = await Promise.all([send(way()), send([...way(), ...UPGRADE])]);
      expect(replies.map(({ status }) => status)).toEqual([502, 502]);
    });

    it('that switches protocols unasked gives its visitor a 502', async () => {
      for (const headers of ['Connection: Upgrade\r\nUpgrade: websocket\r\n', '']) {
        await answers(`HTTP/1.1 101 Switching Protocols\r\n${headers}\r\n`);
        expect((await send(way())).status).toBe(502);
      }
    });

    it('that never answers keeps its visitor no longer than is allowed', async () => {
      await answers('', { hangs: true });
      const replies = await Promise.all([send(way()), send([...way(), ...UPGRADE])]);
      expect(replies.map(({ status }) => status)).toEqual([504, 504]);
    });

    it('has no say in the reason phrase', async () => {
      for (const reason of ['O\x01K', 'O\x7fK', 'x'.repeat(10_000)]) {
        await answers(`HTTP/1.1 200 ${reason}\r\nContent-Length: 2\r\n\r\nhi`);
        const { text } = await send(way());
        // Some of these are refused by the parser already.
        expect(text).toMatch(/^HTTP\/1\.1 (?:200 OK|502 Bad Gateway)\r\n/);
      }
    });

    it('that answers before the request is read, or with too long or too short a length, harms no other request', async () => {
      await answers('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhi');
      expect((await send(way())).status).toBe(200);
      await answers(`${OK}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond`);
      expect((await send(way())).text).not.toContain('second');
      await answers(OK);
      const [first, ...rest] = way();
      const post = [first!.replace('GET', 'POST'), ...rest, 'Content-Length: 1000000'];
      expect((await send(post, 'b'.repeat(1_000_000))).status).toBe(200);
    });

    it('gets one request, framed as its visitor framed it', async () => {
      const [first, ...rest] = way();
      const inner = 'GET /admin HTTP/1.1\r\nHost: x\r\n\r\n';
      const lines = [
        first!,
        ...rest,
        'Connection: Content-Length, Host, close',
        `Content-Length: ${inner.length}`,
      ];
      expect((await send(lines, inner)).status).toBe(200);
      const requests = await seen();
      const [head] = requests[0]!.split('\r\n\r\n');
      expect(head).toMatch(new RegExp(`^content-length: ${inner.length}$`, 'im'));
      expect(head).toMatch(/^host: \S+$/im);
      expect(requests).toHaveLength(1);
    });

    it('gets no token or key of ours, however it is sent', async () => {
      const secrets = [token, e2b.envdAccessToken, e2b.trafficAccessToken, server.alice];
      const lines = [
        ...way(),
        ...secrets
          .slice(1)
          .flatMap((secret) => [
            `X-Access-Token: ${secret}`,
            `X-Access-Token: ${secret}`,
            `X-Anything: a ${secret}`,
          ]),
        `E2b-Traffic-Access-Token: ${e2b.trafficAccessToken}`,
        `E2b-Traffic-Access-Token: ${e2b.trafficAccessToken}`,
        `Authorization: Basic ${Buffer.from(`${server.alice}:`).toString('base64')}`,
        `X-API-Key: ${server.alice}`,
        `Cookie: cay_preview=${token}; a=b`,
        'Connection: x-cay-preview-token, close',
      ];
      expect((await send(lines)).status).toBe(200);
      const requests = (await seen()).join('');
      expect(requests).toContain('GET /');
      for (const secret of [...secrets, Buffer.from(`${server.alice}:`).toString('base64')])
        expect(requests).not.toContain(secret);
    });

    it('sets no cookie of ours, for no other host, and clears nobody else’s', async () => {
      await answers(
        'HTTP/1.1 200 OK\r\nSet-Cookie: cay_preview=x; Domain=.localhost\r\nSet-Cookie: =cay_preview=x\r\nSet-Cookie: a=b; domain=.localhost\r\n' +
          'Clear-Site-Data: "*"\r\nContent-Length: 0\r\n\r\n',
      );
      const { text } = await send(way());
      expect(text).toMatch(/^set-cookie: a=b/im);
      expect(text).not.toMatch(/cay_preview|domain=|clear-site-data/i);
    });
  });

  describe('a preview by path', () => {
    it('does not speak for the API’s origin', async () => {
      await answers(
        'HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=1\r\nAlt-Svc: h3=":1"\r\nService-Worker-Allowed: /\r\nReport-To: {}\r\n' +
          'Content-Security-Policy: default-src *\r\nContent-Length: 0\r\n\r\n',
      );
      const { text } = await send(WAYS['a preview by path']!());
      expect(text).not.toMatch(/^(?:strict-transport-security|alt-svc|service-worker-allowed|report-to):/im);
      expect(text.match(/^content-security-policy: .*/gim)).toEqual([expect.stringMatching(/: sandbox /)]);
    });
  });

  describe('the token of a preview', () => {
    it('leads nowhere else and becomes no cookie on a public port', async () => {
      for (const path of [
        '//evil.example/?cay_token=x',
        '/\\evil.example/?cay_token=x',
        `//evil.example/?cay_token=${token}`,
      ]) {
        const { status, text } = await send([`GET ${path} HTTP/1.1`, `Host: 3001-${bare}.localhost`]);
        expect(status).toBe(302);
        expect(text).toMatch(/^location: \/evil\.example\/\r$/im);
        expect(text).not.toMatch(/^set-cookie/im);
      }
      const { text } = await send([
        'GET /?cay_token=x;Domain=localhost HTTP/1.1',
        `Host: 3001-${bare}.localhost`,
      ]);
      expect(text).not.toMatch(/^set-cookie/im);
    });

    it('opens nothing unless it is that port’s own', async () => {
      const other = await server.create({ ports: [3000] });
      const wrong = ['', 'x', token.slice(1), `${token}A`, other.ports[0]!.token!, token.toLowerCase()];
      const answers = new Set<string>();
      for (const given of wrong) {
        for (const lines of [
          ['GET / HTTP/1.1', `X-Cay-Preview-Token: ${given}`],
          ['GET / HTTP/1.1', `Cookie: cay_preview=${given}x`],
          [`GET /?cay_token=${given} HTTP/1.1`],
        ]) {
          const { status, text } = await send([lines[0]!, `Host: 3000-${bare}.localhost`, ...lines.slice(1)]);
          expect(status, lines.join(' ')).toBe(404);
          answers.add(text.split('\r\n\r\n')[1]!);
        }
      }
      expect(answers.size).toBe(1);
      expect(await seen()).toEqual([]);
    });
  });

  describe('the time that a wrong token takes', () => {
    it('tells nothing of how wrong it is', { timeout: 120_000 }, async () => {
      const other = await server.create({ ports: [3000] });
      const wrong: Record<string, string> = {
        'of another port': (
          await server.call('PUT', `/v1/sandboxes/${sandbox.id}/ports/3002`, {
            body: { visibility: 'private' },
          })
        ).json.token,
        'of another sandbox': other.ports[0]!.token!,
        'one byte short': token.slice(0, -1),
        'wrong in the last byte': `${token.slice(0, -1)}${token.endsWith('A') ? 'B' : 'A'}`,
        'wrong in the first byte': `${token.startsWith('A') ? 'B' : 'A'}${token.slice(1)}`,
        'nothing like it': 'x'.repeat(token.length),
      };
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const times = new Map(Object.keys(wrong).map((name) => [name, [] as number[]]));
      const visit = (given: string) =>
        new Promise<number | undefined>((resolve, reject) => {
          const { hostname, port } = new URL(server.server.url);
          const headers = { host: `3000-${bare}.localhost`, 'x-cay-preview-token': given };
          request({ hostname, port, agent, headers }, (answer) => {
            answer.resume();
            answer.on('end', () => resolve(answer.statusCode));
          })
            .on('error', reject)
            .end();
        });
      // One of each kind in turn, in any order, so that what else the machine does falls on all of them.
      for (let round = 0; round < 100 * SCALE; round++) {
        for (const [name, given] of Object.entries(wrong).toSorted(() => Math.random() - 0.5)) {
          const begun = performance.now();
          expect(await visit(given), name).toBe(404);
          times.get(name)!.push(performance.now() - begun);
        }
      }
      agent.destroy();
      // The quicker ones are what the server takes; the slower ones are what else the machine does.
      const quick = [...times.values()].map((samples) => percentile(samples, 0.25));
      const [least, most] = [Math.min(...quick), Math.max(...quick)];
      const told = Object.fromEntries([...times.keys()].map((name, index) => [name, quick[index]]));
      expect(most - least, JSON.stringify(told)).toBeLessThan(Math.max(0.3, least / 3));
    });
  });

  describe('open connections of visitors', () => {
    it('are bounded for each sandbox, and free their places', async () => {
      await answers('', { hangs: true });
      const many = await Promise.all(
        Array.from({ length: 40 }, () => send(WAYS['a public preview by host']!())),
      );
      const statuses = many.map(({ status }) => status);
      expect(statuses.filter((status) => status === 429).length).toBe(20);
      expect(statuses.filter((status) => status === 504).length).toBe(20);
      await answers(OK);
      expect((await send(WAYS['a public preview by host']!())).status).toBe(200);
    });
  });
});
