/**
 * Frames of HTTP/2 from a grammar on connections of their own, and well-formed streams that are reset, never
 * read, or flooded with, of a tenant and of strangers. A neighbour's request over HTTP/2 is answered all the
 * while, and no connection without a request outlives its time.
 */
import { connect as connectHttp2, constants, type ClientHttp2Session } from 'node:http2';
import { connect, type Socket } from 'node:net';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Target } from '../support/target.ts';
import { frame, PREFACE } from '../../support/http2-frame.ts';

const FRAMES = { data: 0, headers: 1, priority: 2, reset: 3, settings: 4, push: 5, ping: 6, goaway: 7 };
const { data, headers, priority, reset, settings, push, ping, goaway } = FRAMES;
const WINDOW = 8;
const CONTINUATION = 9;
const END_STREAM = 1;
const END_HEADERS = 4;
/** Connections that are left open, as by slow clients. */
const MOST_LEFT_OPEN = 20;
const CASE_MS = 400;
const NEIGHBOUR_MS = 5_000;
const METHODS = ['GET', 'GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'CONNECT', 'OPTIONS', 'PRI', 'x y', ''];
const PATHS = [
  '/healthz',
  '/v1/sandboxes',
  '/v1/capabilities',
  '/v1/events',
  '*',
  '',
  'x',
  '/\0',
  '/ x',
  '//',
  '/%',
];
const NAMES = [
  'connection',
  'transfer-encoding',
  'host',
  'te',
  ':path',
  ':x',
  'X-Upper',
  'a b',
  '',
  'cookie',
  'expect',
];
const VALUES = [
  '',
  'chunked',
  '100-continue',
  'a\r\nb: c',
  '\0',
  'trailers',
  'x'.repeat(9000),
  'evil.example',
];

export const http2: Campaign = {
  name: 'http2',
  targets: [{ backend: 'memory' }],
  flags: () => [],
  open(target, random) {
    const left: Socket[] = [];
    const neighbour = sessionOf(target);
    return Promise.resolve({
      async next() {
        const what = random.chance(0.6) ? await frames(target, random, left) : await streams(target, random);
        while (left.length > MOST_LEFT_OPEN) left.shift()!.destroy();
        const session = neighbour();
        const status = await statusOf(session, {
          ':path': '/v1/capabilities',
          authorization: `Bearer ${target.bob.key}`,
        });
        if (status !== 200) throw new Error(`${what}: a neighbour's request was answered ${status}`);
        return what;
      },
      async [Symbol.asyncDispose]() {
        for (const socket of left) socket.destroy();
        neighbour().destroy();
      },
    });
  },
};

/** A session of a client that behaves; another one if the last was closed for being idle. */
function sessionOf({ url }: Target): () => ClientHttp2Session {
  let session: ClientHttp2Session | undefined;
  return () => {
    if (!session || session.closed || session.destroyed) {
      session = connectHttp2(url);
      session.on('error', () => {});
    }
    return session;
  };
}

function statusOf(session: ClientHttp2Session, head: Record<string, string>): Promise<number | string> {
  return new Promise((resolve) => {
    const stream = session.request(head);
    const timer = setTimeout(() => resolve(`not within ${NEIGHBOUR_MS} ms`), NEIGHBOUR_MS);
    let status: number | undefined;
    stream.on('response', (answer) => (status = answer[':status']));
    stream.on('error', () => {}).resume();
    stream.once('close', () => {
      clearTimeout(timer);
      resolve(status ?? `not at all: ${stream.rstCode}`);
    });
  });
}

/** Bytes on a socket: a preface, mostly, and frames of which some are wrong. */
async function frames(target: Target, random: Random, left: Socket[]): Promise<string> {
  const said: string[] = [];
  const parts: Buffer[] = [
    Buffer.from(
      random.chance(0.9) ? PREFACE : random.pick([PREFACE.slice(0, 10), 'PRI', `${PREFACE}${PREFACE}`]),
    ),
  ];
  if (random.chance(0.9)) parts.push(frame(settings, 0, 0, Buffer.alloc(0)));
  let stream = 1;
  for (let count = 1 + random.below(8); count > 0; count--) {
    const { words, bytes } = hostileFrames(random, stream);
    said.push(words);
    parts.push(bytes);
    if (random.chance(0.7)) stream += 2;
  }
  const reads = random.chance(0.6);
  const stays = random.chance(0.15);
  const socket = connect({ host: target.host, port: target.port });
  socket.on('error', () => {});
  if (reads) socket.resume();
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, random.pick([20, 100, CASE_MS]));
    socket.once('close', () => (clearTimeout(timer), resolve()));
    for (const part of parts) socket.write(part);
    if (random.chance(0.1)) socket.end();
  });
  if (stays) left.push(socket);
  else socket.destroy();
  return `${reads ? '' : 'unread '}${said.join(', ').slice(0, 400)}`;
}

function hostileFrames(random: Random, stream: number): { words: string; bytes: Buffer } {
  const times = random.pick([1, 1, 1, 10, 500, 3000]);
  const many = (words: string, one: () => Buffer, most = times) => ({
    words: `${most} × ${words}`,
    bytes: Buffer.concat(Array.from({ length: most }, one)),
  });
  const id = random.pick([0, stream, stream, stream, 2, stream + 100, 2 ** 31 - 1]);
  const noise = (most: number) =>
    Buffer.from(Array.from({ length: random.below(most) }, () => random.below(256)));
  switch (random.below(13)) {
    case 0:
      return many('request', () => frame(headers, END_HEADERS | END_STREAM, stream, block(random)), 1);
    case 1: {
      let at = stream;
      return many('request and reset', () => {
        const both = [frame(headers, END_HEADERS, at, block(random)), frame(reset, 0, at, Buffer.alloc(4))];
        at += 2;
        return Buffer.concat(both);
      });
    }
    case 2: {
      const pieces = [frame(headers, 0, stream, block(random))];
      for (let count = times; count > 0; count--) pieces.push(frame(CONTINUATION, 0, stream, noise(20)));
      if (random.chance(0.5)) pieces.push(frame(CONTINUATION, END_HEADERS, stream, Buffer.alloc(0)));
      return { words: `${times} continuations`, bytes: Buffer.concat(pieces) };
    }
    case 3:
      return many('header block of noise', () => frame(headers, END_HEADERS | END_STREAM, id, noise(400)), 1);
    case 4:
      return many('settings', () =>
        frame(settings, random.pick([0, 1]), random.pick([0, 0, id]), settingsOf(random)),
      );
    case 5:
      return many('ping', () =>
        frame(ping, random.pick([0, 1]), 0, Buffer.alloc(random.pick([8, 8, 8, 7, 0]))),
      );
    case 6:
      return many('window update', () => frame(WINDOW, 0, id, number32(random.pick([0, 1, 2 ** 31 - 1]))));
    case 7:
      return many(
        'data',
        () => frame(data, random.pick([0, 1, 8, 255]), id, Buffer.alloc(random.pick([0, 0, 1, 16_384]))),
        Math.min(times, 500),
      );
    case 8:
      return many('priority', () => frame(priority, 0, id, Buffer.alloc(random.pick([5, 5, 4]))));
    case 9:
      return many('reset', () => frame(reset, 0, id, number32(random.below(20))));
    case 10:
      return many('push or goaway', () => frame(random.pick([push, goaway]), 4, id, noise(40)));
    case 11:
      return many('unknown frame', () => frame(random.pick([10, 16, 200]), random.below(256), id, noise(60)));
    default: {
      const lies = frame(random.below(12), random.below(256), id, noise(30));
      lies.writeUIntBE(random.pick([0, 1, 16_385, 2 ** 24 - 1]), 0, 3);
      return { words: 'a frame with a wrong length', bytes: lies };
    }
  }
}

function number32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function settingsOf(random: Random): Buffer {
  const one = () => {
    const bytes = Buffer.alloc(6);
    bytes.writeUInt16BE(random.pick([1, 2, 3, 4, 5, 6, 8, 999]));
    bytes.writeUInt32BE(random.pick([0, 1, 16_384, 2 ** 31 - 1, 2 ** 32 - 1]), 2);
    return bytes;
  };
  return Buffer.concat([
    ...Array.from({ length: random.pick([0, 1, 40]) }, one),
    Buffer.alloc(random.pick([0, 0, 0, 3])),
  ]);
}

/** A header block of literals that nobody indexes. Small enough for one frame. */
function block(random: Random): Buffer {
  const fields: [string, string][] = [
    [':method', random.pick(METHODS)],
    [':path', random.pick(PATHS)],
    [':scheme', random.pick(['http', 'http', 'https', ''])],
    [':authority', random.pick(['localhost', '3000-x.localhost', '', 'a b'])],
  ];
  const odd = random.chance(0.4);
  for (let count = odd ? random.pick([1, 2, 200]) : 0; count > 0; count--)
    fields.push([random.pick(NAMES), random.pick(VALUES)]);
  const bytes: Buffer[] = [];
  let total = 0;
  for (const [name, value] of fields) {
    const literal = Buffer.concat([Buffer.of(random.pick([0, 0x10, 0x40])), text(name), text(value)]);
    if ((total += literal.length) > 16_000) break;
    bytes.push(literal);
  }
  return Buffer.concat(bytes);
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  if (bytes.length < 127) return Buffer.concat([Buffer.of(bytes.length), bytes]);
  const prefix = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest >>= 7) prefix.push((rest & 127) | 128);
  return Buffer.concat([Buffer.from([...prefix, rest]), bytes]);
}

/** Streams that the library of a client makes, many at once, and what becomes of them. */
async function streams(target: Target, random: Random): Promise<string> {
  const session = connectHttp2(target.url);
  session.on('error', () => {});
  const key = random.pick([target.alice.key, target.alice.key, '']);
  const count = random.pick([1, 5, 60, 300]);
  const path = random.pick([
    '/healthz',
    '/v1/sandboxes',
    '/v1/events',
    '/openapi.json',
    '/v1/builds/contexts',
    '/mcp',
  ]);
  const method = random.pick(['GET', 'POST', 'PUT', 'HEAD']);
  const end = random.pick(['whole', 'whole', 'reset', 'unread', 'body never ends', 'gone']);
  const statuses = new Set<number>();
  const open = Array.from({ length: count }, () => {
    const stream = session.request(
      {
        ':method': method,
        ':path': path,
        ...(key !== '' && { authorization: `Bearer ${key}` }),
        ...(method !== 'GET' && { 'content-type': random.pick(['application/json', 'application/x-tar']) }),
        ...(random.chance(0.2) && { 'content-length': random.pick(['1', '0', '99999999999', '-1']) }),
      },
      { endStream: method === 'GET' || method === 'HEAD' },
    );
    stream.on('error', () => {}).on('response', (answer) => statuses.add(answer[':status'] ?? 0));
    if (end !== 'unread') stream.resume();
    if (stream.writable) {
      stream.write(Buffer.alloc(random.pick([0, 1, 1000, 200_000]), 123));
      if (end !== 'body never ends') stream.end();
    }
    if (end === 'reset') setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), random.below(30));
    return new Promise<void>((resolve) => stream.once('close', resolve));
  });
  if (end === 'gone') setTimeout(() => session.destroy(), random.below(30));
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, CASE_MS * 2)));
  await Promise.race([Promise.all(open), late]);
  clearTimeout(timer);
  session.destroy();
  const what = `${count} × ${method} ${path} ${key === '' ? 'by a stranger ' : ''}${end}`;
  if (statuses.has(500)) throw new Error(`${what} was answered 500`);
  return `${what} → ${[...statuses].join(' ')}`;
}
