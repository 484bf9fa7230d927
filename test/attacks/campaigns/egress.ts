/**
 * A guest and its programs that try to get out: lookups and connections with hostile fields, and on each
 * connection a ClientHello, requests of HTTP/1 and HTTP/2, or noise, whole and in pieces; and DNS packets
 * from inside, and datagrams in pieces and with wrong lengths. Nothing is reached but what the operator
 * named, the server does not fail, and the guest goes on answering.
 */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { encodeCbor, type CborMap, type CborValue } from '../../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, writeHeader } from '../../../server/src/guest/frame.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { takeLink } from '../support/lying-guest.ts';
import { PLATFORMS } from '../support/platforms.ts';

/** How long a case goes on after it has said all. */
const SETTLE_MS = 40;
const CASES_PER_DIAL = 12;
const CASES_PER_DNS = 40;
const NAMES = [
  'example.org',
  'a.example.org',
  'localhost',
  'x'.repeat(63) + '.org',
  'metadata.google.internal',
  '127.0.0.1',
  '0x7f.1',
  '2130706433',
  'xn--a',
  '-a.org',
  '_x.org',
  'a..b',
  'A.ORG',
  'é.org',
  '',
  'a'.repeat(254),
  'a\0b.org',
];
const ADDRESSES = [
  '127.0.0.1',
  '127.0.0.2',
  '0.0.0.0',
  '::1',
  '::',
  '::ffff:127.0.0.1',
  '64:ff9b::7f00:1',
  '2002:7f00:1::',
  '169.254.169.254',
  '10.0.0.1',
  '192.168.1.1',
  'fe80::1%lo',
  '127.1',
  '1.2.3.4',
  '[::1]',
];

let allowed: Server;
let forbidden: Server;
let forbiddenHits = 0;
/** On the same ports, over UDP. */
let datagrams: Socket[] = [];
const allowing = () => [`127.0.0.1:${portOf(allowed)}`, `udp:127.0.0.1:${portOf(allowed)}`];
const portOf = (server: Server) => (server.address() as AddressInfo).port;

async function listening(onConnection: () => void): Promise<Server> {
  const server = createServer((socket) => {
    onConnection();
    socket.on('error', () => {});
    socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

/** Counts datagrams to the forbidden port; the allowed one answers each with two. */
async function datagramsOn(port: number, onDatagram: () => void): Promise<Socket> {
  const socket = createSocket('udp4');
  socket.on('message', (_bytes, { port: back, address }) => {
    onDatagram();
    for (const answer of ['', 'x'.repeat(1400)]) socket.send(answer, back, address);
  });
  socket.bind(port, '127.0.0.1');
  await once(socket, 'listening');
  return socket;
}

export const egress: Campaign = {
  name: 'egress',
  targets: PLATFORMS.map(({ target }) => target),
  async flags() {
    forbiddenHits = 0;
    allowed = await listening(() => {});
    forbidden = await listening(() => forbiddenHits++);
    datagrams = [
      await datagramsOn(portOf(allowed), () => {}),
      await datagramsOn(portOf(forbidden), () => forbiddenHits++),
    ];
    const rule = { base: 'public', allow: allowing() };
    return ['--max-network', JSON.stringify(rule)];
  },
  async open(target, random) {
    const network = {
      allow: [...allowing(), { to: 'secure.example.org', methods: ['GET'] }],
    };
    const honest = await target.bob.create({ network: 'packages' });
    const { id } = await target.alice.create({ network } as never);
    const link = await takeLink(target, id);
    let liar = await link.next({ features: ['egress'] });
    let cases = 0;
    let stream = 0;
    return {
      async next() {
        if (cases++ % CASES_PER_DNS === 0) return askDns();
        if (liar.ended || cases % CASES_PER_DIAL === 0) {
          liar.close();
          liar = await link.next({ features: ['egress'] });
          stream = 0;
        }
        const steps = stepsOf(random, (stream += 2));
        for (const [, bytes] of steps) await liar.raw(bytes).catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
        const what = steps.map(([words]) => words).join(', ');
        if (forbiddenHits > 0) throw new Error(`${what}: a port was reached that no rule allows`);
        return what;
      },
      async [Symbol.asyncDispose]() {
        liar.close();
        link.close();
        allowed.close();
        forbidden.close();
        for (const socket of datagrams) socket.close();
      },
    };

    /** Packets of every kind to the guest's name server, and then a question that it has to answer. */
    async function askDns(): Promise<string> {
      const seed = random.below(2 ** 31);
      const { stdout, stderr } = await target.bob.exec(honest.id, ['python3', '-c', DNS, String(seed)], {
        timeoutMs: 30_000,
      });
      if (!stdout.includes('answered'))
        throw new Error(`DNS packets of seed ${seed}: ${stdout} ${stderr.slice(-500)}`);
      return `DNS packets of seed ${seed}`;
    }
  },
};

const DNS = `
import random, socket, struct, sys
r = random.Random(int(sys.argv[1]))
def name():
    kind = r.randrange(6)
    if kind == 0: return b'\\xc0\\x0c'
    if kind == 1: return b'\\xc0' + bytes([r.randrange(256)])
    if kind == 2: return bytes([r.randrange(256)]) + r.randbytes(r.randrange(70))
    if kind == 3: return b'\\x3f' + b'a' * 63 + b'\\x3f' + b'b' * 63 + b'\\x3f' + b'c' * 63 + b'\\x3f' + b'd' * 63 + b'\\0'
    if kind == 4: return b'\\x01a' * r.randrange(300) + b'\\0'
    return b'\\x07example\\x03org\\0'
def packet():
    head = struct.pack('>HHHHHH', r.randrange(65536), r.choice([0x100, 0, 0x8180, 0x7800, 0xffff]), r.choice([0, 1, 2, 65535]), r.choice([0, 0, 1, 65535]), 0, r.choice([0, 1]))
    body = b''.join(name() + struct.pack('>HH', r.choice([1, 28, 255, 252, 41, 65535, 15, 16, 65, 12]), r.choice([1, 3, 255])) for _ in range(r.randrange(4)))
    whole = head + body + r.randbytes(r.choice([0, 0, 11, 400]))
    return whole[:r.choice([len(whole), len(whole), r.randrange(len(whole) + 1)])]
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(300): u.sendto(packet(), ('127.0.0.53', 53))
for _ in range(10):
    try:
        t = socket.create_connection(('127.0.0.53', 53), 2)
        p = packet()
        t.sendall(struct.pack('>H', r.choice([len(p), 65535, 0, 1])) + p)
        t.close()
    except OSError: pass
u.close()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(5)
for _ in range(3):
    u.sendto(struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\\x04pypi\\x03org\\0' + struct.pack('>HH', 1, 1), ('127.0.0.53', 53))
    try:
        if u.recv(4096)[:2] == b'\\0\\x07':
            print('answered')
            break
    except OSError: pass
`;

type Words = [words: string, bytes: Buffer];

function stepsOf(random: Random, stream: number): Words[] {
  const steps: Words[] = [];
  const request = requestOf(random);
  steps.push([`open ${JSON.stringify(request).slice(0, 120)}`, encoded(FRAME.open, stream, request)]);
  for (let count = random.below(4); count > 0; count--) {
    const [words, bytes] = random.pick(
      request['op'] === 'datagrams' ? [framed, framed, noise] : [clientHello, http1, http2, noise, framed],
    )(random);
    const pieces = random.chance(0.5) ? [bytes] : cut(bytes, random);
    steps.push([
      `${words} in ${pieces.length}`,
      Buffer.concat(pieces.map((piece) => frame(FRAME.data, stream, piece))),
    ]);
  }
  if (random.chance(0.3)) steps.push(['end', frame(FRAME.end, stream, Buffer.alloc(0))]);
  if (random.chance(0.2))
    steps.push(['reset', encoded(FRAME.reset, stream, { code: 'cancelled', message: 'x' })]);
  if (random.chance(0.2)) {
    const credit = Buffer.alloc(4);
    credit.writeUInt32BE(random.pick([0, 1, 65_536, 0xffffffff]));
    steps.push(['credit', frame(FRAME.credit, stream, credit)]);
  }
  return steps;
}

function requestOf(random: Random): CborMap {
  const port = random.pick<CborValue>([
    80,
    443,
    443,
    80,
    portOf(allowed),
    portOf(forbidden),
    0,
    65_536,
    -1,
    '80',
    22,
  ]);
  const request: CborMap = {
    op: random.chance(0.8)
      ? random.pick(['egress', 'egress', 'datagrams'])
      : random.pick(['lookup', 'exec', '__proto__', '']),
    ...(random.chance(0.7)
      ? { name: random.chance(0.6) ? random.pick(['secure.example.org', 'example.org']) : random.pick(NAMES) }
      : { address: random.chance(0.4) ? '127.0.0.1' : random.pick(ADDRESSES) }),
    port,
  };
  if (random.chance(0.2))
    request['process'] = random.pick<CborValue>(['curl', 'x'.repeat(1000), '\u{1b}[2J', 7, null]);
  if (random.chance(0.05))
    request[random.pick(['name', 'address', 'port', 'x'])] = random.pick<CborValue>([
      null,
      [],
      {},
      true,
      Buffer.alloc(9),
    ]);
  return request;
}

const HOSTS = ['secure.example.org', 'example.org', 'other.example.org', '127.0.0.1', 'localhost', ''];

/** A ClientHello with a server name, and some of its lengths wrong. */
function clientHello(random: Random): [string, Buffer] {
  const host = Buffer.from(random.pick(HOSTS));
  const name = block(2, Buffer.concat([Buffer.from([0]), block(2, host)]));
  const protocols = block(2, Buffer.concat(['h2', 'http/1.1'].map((one) => block(1, Buffer.from(one)))));
  const extension = (type: number, body: Buffer) => Buffer.concat([number(2, type), block(2, body)]);
  const extensions = [extension(0, name), extension(16, protocols), extension(43, Buffer.from([2, 3, 4]))];
  if (random.chance(0.3)) extensions.push(extension(0, name));
  if (random.chance(0.2)) extensions.push(extension(21, Buffer.alloc(random.pick([1, 4000, 60_000]))));
  const hello = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    block(1, Buffer.alloc(random.pick([0, 32, 255]))),
    block(2, Buffer.from([0x13, 0x01, 0xc0, 0x2f])),
    block(1, Buffer.from([0])),
    block(2, Buffer.concat(extensions).subarray(0, 65_000)),
  ]);
  const handshake = Buffer.concat([Buffer.from([1]), block(3, hello)]);
  const records: Buffer[] = [];
  const size = random.pick([16_384, 16_384, 100, 1]);
  for (let at = 0; at < handshake.length && records.length < 2000; at += size)
    records.push(Buffer.concat([Buffer.from([22, 3, 1]), block(2, handshake.subarray(at, at + size))]));
  const whole = Buffer.concat(records);
  for (let count = random.pick([0, 0, 1, 3]); count > 0; count--)
    whole[random.below(Math.min(whole.length, 120))] = random.below(256);
  return ['ClientHello', whole];
}

function http1(random: Random): [string, Buffer] {
  const target = random.pick([
    '/',
    '*',
    '//x',
    'http://secure.example.org/',
    'http://127.0.0.1/',
    '/%00',
    `/${'x'.repeat(70_000)}`,
    'x',
  ]);
  const host = random.pick(HOSTS);
  const lines = [
    `${random.pick(['GET', 'POST', 'CONNECT', 'PRI', 'OPTIONS', 'G T'])} ${target} HTTP/${random.pick(['1.1', '1.0', '2.0', '9'])}`,
    `Host: ${host}`,
  ];
  const more = [
    `Host: ${random.pick(HOSTS)}`,
    'Content-Length: 5',
    'Content-Length: 5, 6',
    'Content-Length: -1',
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: chunked, identity',
    ' folded: x',
    'Connection: upgrade, host',
    'Upgrade: websocket',
    'Upgrade: h2c',
    'HTTP2-Settings: AAMAAABk',
    'Expect: 100-continue',
    'X-Nul: \0',
    `X-Big: ${'y'.repeat(70_000)}`,
  ];
  for (let count = random.below(5); count > 0; count--) lines.push(random.pick(more));
  const body = random.pick(['', 'hello', '5\r\nhello\r\n0\r\n\r\n', 'fffffffffffffffff\r\n', 'zz\r\n']);
  const one = `${lines.join('\r\n')}\r\n\r\n${body}`;
  return ['HTTP/1', Buffer.from(one.repeat(random.pick([1, 1, 2, 300])).slice(0, 200_000), 'latin1')];
}

function http2(random: Random): [string, Buffer] {
  const frames: Buffer[] = [Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')];
  const h2 = (type: number, flags: number, id: number, payload: Buffer) =>
    Buffer.concat([number(3, payload.length), Buffer.from([type, flags]), number(4, id), payload]);
  frames.push(h2(4, 0, 0, Buffer.alloc(random.pick([0, 6, 5, 600]))));
  for (let count = random.pick([1, 5, 200]); count > 0; count--) {
    const type = random.pick([0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 99]);
    const payload = random.pick([
      Buffer.alloc(0),
      Buffer.from([0x82, 0x86, 0x84, 0x41, 0x8a]),
      Buffer.from('828684410b6578616d706c652e6f7267', 'hex'),
      Buffer.alloc(8, 0xff),
      Buffer.alloc(4, 0),
      Buffer.alloc(1000, 0x3f),
    ]);
    frames.push(
      h2(type, random.pick([0, 1, 4, 5, 0xff]), random.pick([0, 1, 3, 5, 7, 2, 0x7fffffff]), payload),
    );
  }
  return ['HTTP/2', Buffer.concat(frames)];
}

/** Datagrams with their lengths: none, many, too long, and lengths that are wrong. */
function framed(random: Random): [string, Buffer] {
  const all = Array.from({ length: random.pick([1, 2, 50, 3000]) }, () => {
    const length = random.pick([0, 1, 12, 1400]);
    const said = random.chance(0.97) ? length : random.pick([0, length + 1, 16_384, 16_385, 65_535]);
    return Buffer.concat([number(2, said), Buffer.alloc(length, random.below(256))]);
  });
  return ['datagrams', Buffer.concat(all).subarray(0, 300_000)];
}

function noise(random: Random): [string, Buffer] {
  const length = random.pick([1, 5, 100, 3000]);
  return ['noise', Buffer.from(Array.from({ length }, () => random.below(256)))];
}

function cut(bytes: Buffer, random: Random): Buffer[] {
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length && pieces.length < 500;) {
    const size = random.pick([1, 2, 7, 1000, 16_384]);
    pieces.push(bytes.subarray(at, at + size));
    at += size;
  }
  return pieces;
}

function number(bytes: number, value: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntBE(value, 0, bytes);
  return buffer;
}

/** Its length, and then itself. */
const block = (bytes: number, content: Buffer) => Buffer.concat([number(bytes, content.length), content]);

function encoded(type: number, stream: number, map: CborMap): Buffer {
  return frame(type, stream, encodeCbor(map));
}

function frame(type: number, stream: number, payload: Uint8Array): Buffer {
  const pieces: Buffer[] = [];
  // A frame has at most so much.
  for (let at = 0; at === 0 || at < payload.length; at += 32_768) {
    const piece = payload.subarray(at, at + 32_768);
    const head = Buffer.alloc(HEADER_BYTES);
    writeHeader(head, 0, { length: piece.length, type, channel: 0, stream });
    pieces.push(head, Buffer.from(piece));
  }
  return Buffer.concat(pieces);
}
