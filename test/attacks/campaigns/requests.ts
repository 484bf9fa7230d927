/**
 * Requests that are put together byte by byte from a grammar of targets, hosts, headers, framings and
 * upgrades, for every plane: our own API, E2B's two, previews by host and by path. Each gets an answer that
 * is no failure of the server's, or a closed connection.
 */
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { exchange } from '../support/exchange.ts';

const PATIENCE_MS = 3_000;
const METHODS = ['GET', 'GET', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];
const ODD_METHODS = ['TRACE', 'CONNECT', 'PRI', 'get', 'G@T'];
/** Lines that are no header. */
const BROKEN = [
  ' folded: x',
  'no-colon',
  ': empty',
  'Bad Name: x',
  'X-Nul: a\0b',
  `X-Big: ${'y'.repeat(20_000)}`,
  'Host: other',
];
const ODD_VERSIONS = ['1.0', '1.2', '2.0'];
/** Statuses that say something about a sandbox or the request, and nothing bad about the server. */
const FINE_ABOVE_500 = [501, 502, 503, 504, 505];

interface Words {
  id: string;
  bare: string;
  access: string;
  traffic: string;
  key: string;
  preview: string;
}

export const requests: Campaign = {
  name: 'requests',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const made = (
      await target.alice.call('POST', '/v2/sandboxes', { body: { templateID: 'base', timeout: 3600 } })
    ).json;
    const id = `sbx_${made.sandboxID}`;
    const exposed = await target.alice.call('PUT', `/v1/sandboxes/${id}/ports/3000`, {
      body: { visibility: 'private' },
    });
    const preview = exposed.json.token as string;
    const words: Words = {
      id,
      bare: made.sandboxID,
      access: made.envdAccessToken,
      traffic: made.trafficAccessToken,
      key: target.alice.key,
      preview,
    };
    return {
      async next() {
        const { bytes, complete, hosts } = requestOf(random, words);
        const { status, text, closed } = await exchange(bytes, {
          host: target.host,
          port: target.port,
          timeoutMs: PATIENCE_MS,
        });
        const what = `${JSON.stringify(bytes.slice(0, 600))} → ${status ?? (closed ? 'closed' : 'silence')}`;
        if (status !== undefined && status >= 500 && !FINE_ABOVE_500.includes(status))
          throw new Error(`${what}: ${text.slice(0, 500)}`);
        if (status === undefined && !closed && complete)
          throw new Error(`${what}: no answer within ${PATIENCE_MS} ms`);
        const isApi = text.includes('"alive":true') || text.includes('"sandboxes":[');
        if (isApi && hosts.some((host) => /^\d+-/.test(host)))
          throw new Error(`${what}: a preview's host has reached the API`);
        return what;
      },
    };
  },
};

interface Made {
  bytes: string;
  /** Whether all of the body that it announces is there. */
  complete: boolean;
  hosts: string[];
}

function requestOf(random: Random, words: Words): Made {
  // Of what is wrong in many ways only the first is ever looked at.
  const wild = random.pick([0, 0.05, 0.3]);
  const method = random.pick(random.chance(wild) ? ODD_METHODS : METHODS);
  const hosts = random.chance(wild / 4)
    ? []
    : Array.from({ length: random.chance(wild / 4) ? 2 : 1 }, () => hostOf(random, words, wild));
  const lines = [
    `${method} ${targetOf(random, words)} HTTP/${random.chance(wild) ? random.pick(ODD_VERSIONS) : '1.1'}`,
  ];
  for (const host of hosts) lines.push(`Host: ${host}`);
  for (let count = random.below(5); count > 0; count--)
    lines.push(random.chance(wild) ? random.pick(BROKEN) : headerOf(random, words));
  const upgrade = random.chance(0.2);
  if (upgrade) lines.push(...upgradeOf(random));
  const { framing, body, complete } = bodyOf(random, wild);
  lines.push(...framing);
  if (!upgrade && random.chance(0.7)) lines.push('Connection: close');
  return { bytes: `${lines.join('\r\n')}\r\n\r\n${body}`, complete: complete && hosts.length > 0, hosts };
}

function hostOf(random: Random, { bare }: Words, wild: number): string {
  if (!random.chance(wild))
    return random.pick([
      'localhost',
      'localhost',
      'api.localhost',
      ...['3000', '3001', '49983', '49999'].map((port) => `${port}-${bare}.localhost`),
    ]);
  const port = random.pick([
    '3000',
    '3001',
    '49983',
    '49999',
    '0',
    '65536',
    '99999',
    '0003000',
    '7',
    '-1',
    '3e3',
    '',
  ]);
  const id = random.pick([
    bare,
    bare,
    bare,
    bare.toUpperCase(),
    'a'.repeat(20),
    'short',
    `${bare}x`,
    `${bare}.deeper`,
    '%00',
    '',
  ]);
  const domain = random.pick([
    'localhost',
    'localhost',
    'LOCALHOST',
    'localhost.',
    'localhost.evil',
    'api.localhost',
    'evil',
  ]);
  const end = random.pick(['', '', ':7070', ':99999', ':', '@evil', '/', ' ']);
  return random.pick([
    `${port}-${id}.${domain}${end}`,
    `${port}-${id}.${domain}${end}`,
    `localhost${end}`,
    `api.localhost${end}`,
    '[::1',
    '[::1]',
    '',
  ]);
}

function targetOf(random: Random, words: Words): string {
  const piece = () =>
    random.pick([
      '/',
      '//',
      '/\\',
      '//[',
      '///',
      '/%',
      '/%zz',
      '/%00',
      '/%2e%2e/',
      '/..',
      '/.',
      '/a:99999',
      '\xff\xfe',
      '@',
      '?',
      '&',
      '=',
      '#',
      ';',
      '*',
      '[',
      ']',
      'v1',
      'v2',
      'sandboxes',
      'templates',
      'files',
      'health',
      'healthz',
      'metrics',
      'openapi.json',
      'preview',
      'exec',
      'ports',
      'tcp',
      '3000',
      words.id,
      words.bare,
    ]);
  const whole = () =>
    random.pick([
      '/',
      '//',
      '/\\',
      '//[',
      '///',
      '*',
      '//a:99999/',
      'http://%zz',
      'http://localhost/healthz',
      `http://3000-${words.bare}.localhost/`,
      'localhost:80',
      '//evil.example/?cay_token=x',
      '/healthz',
      '/v1/sandboxes',
      '/v2/sandboxes',
      '/sandboxes/',
      `/v1/sandboxes/${words.id}`,
      `/sandboxes/${words.bare}`,
      '/health',
      '/envs',
      '/metrics',
      '/process.Process/List',
      '/process.Process/Start',
      '/filesystem.Filesystem/Stat',
      '/files',
      '/files?path=x&signature=v1_' + 'A'.repeat(43),
      '/files?path=%zz&username=%00&signature_expiration=1e99',
      `/preview/${words.id}/3000/`,
      `/preview/${words.id}/3000//evil?cay_token=${words.preview}`,
      `/preview/${words.id}/3000?cay_token=x;Domain=localhost`,
      '/preview/',
      '/preview/x/1',
      `/preview/${words.id}/49983/health`,
      `/v1/sandboxes/${words.id}/exec`,
      `/v1/sandboxes/${words.id}/ports/3000/tcp`,
      `/v1/sandboxes/${words.id}/ports/99999/tcp`,
      '/v1/sandboxes/%/exec',
      `/${'a'.repeat(random.below(20_000))}`,
    ]);
  if (random.chance(0.6)) return whole() + (random.chance(0.2) ? piece() + piece() : '');
  let text = random.chance(0.8) ? '/' : '';
  for (let count = random.below(8); count >= 0; count--) text += piece() + (random.chance(0.4) ? '/' : '');
  return text === '' ? '/' : text;
}

function headerOf(random: Random, { id, bare, access, traffic, key, preview }: Words): string {
  const sandbox = random.pick([bare, bare, id, 'a'.repeat(20), 'x', '', `${bare}-client`, '../..', '\xff']);
  const port = random.pick([
    '3000',
    '49983',
    '49999',
    '3001',
    '0',
    '65536',
    'x',
    '3e3',
    ' 3000',
    '',
    '-1',
    '0x10',
  ]);
  const token = random.pick([
    access,
    traffic,
    preview,
    key,
    `${access}, ${access}`,
    access.slice(1),
    '',
    'x'.repeat(5000),
    '\xff',
  ]);
  return random.pick([
    `E2b-Sandbox-Id: ${sandbox}`,
    `E2b-Sandbox-Id: ${sandbox}`,
    `E2b-Sandbox-Port: ${port}`,
    `E2b-Sandbox-Port: ${port}`,
    `X-Access-Token: ${token}`,
    `E2b-Traffic-Access-Token: ${token}`,
    `X-Cay-Preview-Token: ${token}`,
    `X-API-Key: ${token}`,
    `Authorization: Bearer ${token}`,
    `Authorization: Basic ${random.pick(['dXNlcg==', '====', 'AAAA', Buffer.from(`${key}:`).toString('base64')])}`,
    `Cookie: cay_preview=${token}; a=b;;=;cay_`,
    `Connection: ${random.pick(['content-length', 'host', 'transfer-encoding', 'x-access-token', 'close, upgrade', ',,,', 'keep-alive'])}`,
    'Origin: http://evil',
    'Access-Control-Request-Method: POST',
    'Access-Control-Request-Headers: x-metadata-\xff',
    'Expect: 100-continue',
    'Expect: nonsense',
    'Content-Type: application/json',
    'Content-Type: application/connect+json',
    'Content-Type: multipart/form-data; boundary=',
    'Content-Encoding: gzip',
    'Accept: text/event-stream',
    `Range: bytes=${random.pick(['0-', '-1', '9-1', '0-1,3-4', '99999999999999999999-', 'x'])}`,
    'Accept-Encoding: identity;q=0',
    'If-Range: x',
    'Last-Event-ID: -1e9',
    'Prefer: respond-async',
    `Idempotency-Key: ${random.pick(['', 'x'.repeat(3000), '\xff'])}`,
    'Traceparent: 00-0-0-0',
    'X-Request-Id: \x7f',
    'X-Forwarded-For: x, y',
    'Connect-Timeout-Ms: NaN',
    'Keepalive-Ping-Interval: -1',
  ]);
}

function upgradeOf(random: Random): string[] {
  const key = random.pick(['dGhlIHNhbXBsZSBub25jZQ==', '', 'short', '\xff']);
  return [
    `Connection: ${random.pick(['Upgrade', 'upgrade, close', 'keep-alive, Upgrade', 'Upgrade'])}`,
    `Upgrade: ${random.pick(['websocket', 'websocket', 'WebSocket', 'h2c', '', 'TLS/1.0, x', '\xff'])}`,
    ...(random.chance(0.8) ? [`Sec-WebSocket-Key: ${key}`] : []),
    ...(random.chance(0.8)
      ? [`Sec-WebSocket-Version: ${random.pick(['13', '13', '8', '99', 'x', ''])}`]
      : []),
    ...(random.chance(0.3)
      ? [`Sec-WebSocket-Protocol: ${random.pick(['cay', 'cay.key.x', ',,', '@', 'a, a'])}`]
      : []),
    ...(random.chance(0.2) ? ['Sec-WebSocket-Extensions: permessage-deflate; x=";'] : []),
  ];
}

function bodyOf(random: Random, wild: number): { framing: string[]; body: string; complete: boolean } {
  const text = random.pick([
    '',
    '{}',
    '{"a":',
    '[]',
    'null',
    '\0\0\0\0\x05{"a"}',
    '\x02\0\0\0\x02{}',
    'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n',
  ]);
  const chunked = `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;
  if (random.chance(0.5)) return { framing: [], body: '', complete: true };
  const length = `Content-Length: ${text.length}`;
  if (!random.chance(wild)) return { framing: [length], body: text, complete: true };
  const framing = random.pick([
    [length, length],
    [length, `Content-Length: ${text.length + 1}`],
    [length, 'Transfer-Encoding: chunked'],
    ['Transfer-Encoding: chunked'],
    ['Transfer-Encoding: chunked, identity'],
    ['Transfer-Encoding: identity'],
    ['Transfer-Encoding: gzip, chunked'],
    ['Transfer-Encoding: \x0bchunked'],
    ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
    ['Content-Length: -1'],
    ['Content-Length: 1e3'],
    ['Content-Length: 99999999999999999999'],
    ['Content-Length: +2'],
  ]);
  return { framing, body: random.pick([text, chunked, `zz\r\n${text}`]), complete: false };
}
