/**
 * Messages in binary protobuf to every call of a sandbox's services: from the tables of the calls, with bytes
 * changed, cut, repeated and wrapped, with wrong lengths of envelopes. A message that cannot be read is the
 * client's mistake; none is a failure of the server's, and no token opens another sandbox.
 */
import { CALL_MESSAGES } from '../../../server/src/api/e2b/envd/proto-messages.ts';
import { encodeMessage } from '../../../server/src/lib/protobuf/encode.ts';
import type { Field, MessageType } from '../../../server/src/lib/protobuf/message.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { e2bSandbox } from '../support/e2b-sandbox.ts';

/** Some calls stream until the client disconnects. */
const PATIENCE_MS = 400;
const STREAMS = ['Start', 'Connect', 'WatchDir', 'StreamInput'];
const WORDS = [
  '',
  'user',
  'root',
  'true',
  '/bin/sh',
  '-c',
  'x',
  '/tmp',
  '/tmp/a',
  '..',
  '/proc/1',
  'a\0b',
  '__proto__',
];
const NUMBERS = [0, 1, 2, 1000, 2 ** 31 - 1];
/** What a refused client may send before it is refused. */
const FOREIGN_BYTES = 4_000;
const LONG_BODY = 64 * 1024;
const RESETS = ['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET'];
const CANARY = 'protobuf-canary-of-bob';

export const protobuf: Campaign = {
  name: 'protobuf',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const box = await e2bSandbox(target);
    const bobs = await target.bob.create({ env: { CANARY }, labels: { canary: CANARY } });
    const paths = Object.keys(CALL_MESSAGES);
    return {
      async next() {
        const path = random.pick(paths);
        const foreign = random.chance(0.1);
        const streaming = STREAMS.some((name) => path.endsWith(`/${name}`)) !== random.chance(0.03);
        const { words, bytes } = messageFor(CALL_MESSAGES[path]!.request, random);
        const whole = streaming ? envelopes(bytes, random) : bytes;
        // Without a right token the answer comes before the body was read, and the connection is closed.
        const body = foreign ? whole.subarray(0, FOREIGN_BYTES) : whole;
        const type = `application/${streaming ? 'connect+' : ''}${random.chance(0.98) ? 'proto' : 'json'}`;
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const what = `${path}${foreign ? ' of another' : ''} ${words}, ${body.length} bytes`;
        const reply = await target
          .stranger('POST', path, {
            body,
            signal,
            headers: {
              ...box.headers,
              'content-type': type,
              ...(foreign && { 'e2b-sandbox-id': bobs.id.slice(4) }),
              ...(random.chance(0.05) && {
                'connect-timeout-ms': random.pick(['0', '-1', 'x', '99999999999999']),
              }),
            },
          })
          .catch((error: unknown) => {
            if (signal.aborted || (error as Error).message === 'terminated') return undefined;
            // An answer that comes before a long body has been read ends the connection.
            if (
              body.length > LONG_BODY &&
              RESETS.includes(String(((error as Error).cause as { code?: string }).code))
            )
              return undefined;
            throw new Error(`${what}: ${String(error)} ${String((error as Error).cause)}`);
          });
        if (reply === undefined) return `${what} → none`;
        if (reply.status === 500 || /"code":"internal"/.test(reply.text))
          throw new Error(
            `${what} → ${reply.status} ${reply.text.slice(-400)} ${body.toString('hex').slice(0, 400)}`,
          );
        if (foreign && reply.status < 400)
          throw new Error(`${what} → ${reply.status} ${reply.text.slice(0, 300)}`);
        if (reply.text.includes(CANARY)) throw new Error(`${what} was told of another tenant`);
        return `${what} → ${reply.status}`;
      },
    };
  },
};

function messageFor(type: MessageType, random: Random): { words: string; bytes: Buffer } {
  let bytes = Buffer.from(encodeMessage(type, valueOf(type, random)));
  const changes: string[] = [];
  for (let count = random.pick([0, 0, 1, 2, 5]); count > 0; count--) {
    const [name, change] = random.pick(CHANGES);
    changes.push(name);
    bytes = change(bytes, random);
  }
  return { words: changes.join(' and ') || 'as it is', bytes };
}

const CHANGES: readonly [string, (bytes: Buffer, random: Random) => Buffer<ArrayBuffer>][] = [
  [
    'one byte changed',
    (bytes, random) => {
      const copy = Buffer.from(bytes);
      if (copy.length > 0) copy[random.below(copy.length)] = random.below(256);
      return copy;
    },
  ],
  ['cut', (bytes, random) => Buffer.from(bytes.subarray(0, random.below(bytes.length + 1)))],
  [
    'repeated',
    (bytes, random) =>
      Buffer.concat(Array.from({ length: random.pick([2, 10, 1000]) }, () => bytes)).subarray(0, 1 << 20),
  ],
  ['a varint without an end', (bytes) => Buffer.concat([bytes, Buffer.alloc(30, 0xff)])],
  [
    'a length beyond the end',
    (bytes) => Buffer.concat([bytes, Buffer.of(0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f)]),
  ],
  [
    'nested',
    (bytes, random) => {
      let inner = bytes;
      for (let depth = random.pick([1, 30, 300]); depth > 0 && inner.length < 100_000; depth--)
        inner = Buffer.concat([Buffer.of(0x0a), varint(inner.length), inner]);
      return Buffer.from(inner);
    },
  ],
  [
    'groups',
    (bytes, random) => {
      const depth = random.pick([1, 31, 33, 5000]);
      return Buffer.concat([
        bytes,
        Buffer.alloc(depth, 0x13),
        Buffer.alloc(random.pick([depth, depth - 1, 0]), 0x14),
      ]);
    },
  ],
  [
    'unknown fields',
    (bytes, random) =>
      Buffer.concat([
        bytes,
        ...Array.from({ length: random.pick([1, 100, 20_000]) }, () => Buffer.of(0xf8, 0x07, 1)),
      ]),
  ],
  [
    'noise',
    (_bytes, random) => Buffer.from(Array.from({ length: random.below(200) }, () => random.below(256))),
  ],
  ['text that is none', (bytes) => Buffer.concat([bytes, Buffer.of(0x0a, 2, 0xc0, 0x80)])],
];

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (; value >= 128; value >>>= 7) bytes.push((value & 127) | 128);
  return Buffer.from([...bytes, value]);
}

function valueOf(type: MessageType, random: Random, depth = 0): Record<string, unknown> {
  const fields = type.fields.filter(() => random.chance(depth > 5 ? 0.2 : 0.75));
  return Object.fromEntries(
    fields.map((field) => {
      const count = random.pick([0, 1, 2, 5, 300]);
      const one = () => oneOf(field, random, depth + 1);
      return [field.name, field.repeated ? Array.from({ length: depth > 2 ? 1 : count }, one) : one()];
    }),
  );
}

function oneOf({ type }: Field, random: Random, depth: number): unknown {
  if (typeof type === 'object') {
    if ('fields' in type) return valueOf(type, random, depth);
    return random.chance(0.8) ? random.pick(Object.keys(type.names)) : random.pick([99, -1, 2 ** 31 - 1]);
  }
  switch (type) {
    case 'string':
      return random.chance(0.9) ? random.pick(WORDS) : 'x'.repeat(random.pick([100, 5000, 70_000]));
    case 'bytes':
      return Buffer.alloc(random.pick([0, 1, 1000, 100_000]), random.below(256));
    case 'bool':
      return random.chance(0.5);
    case 'int64':
      return String(random.pick([0n, 1n, -1n, 2n ** 63n - 1n, -(2n ** 63n)]));
    case 'sint32':
      return random.pick([...NUMBERS, -1, -(2 ** 31)]);
    case 'timestamp':
      return new Date(random.pick([0, 1e12, -1, 8.64e15])).toISOString();
    case 'map':
      return Object.fromEntries(
        Array.from({ length: random.pick([0, 1, 5, 2000]) }, (_, at) => [
          `${random.pick(WORDS)}${at % 7}`,
          random.pick(WORDS),
        ]),
      );
    default:
      return random.pick(NUMBERS);
  }
}

/**
 * Connect's framing: right, mostly; a wrong length, odd flags, several messages, or a message that is cut.
 */
function envelopes(message: Buffer, random: Random): Buffer {
  const envelope = (bytes: Buffer) => {
    const head = Buffer.alloc(5);
    head[0] = random.chance(0.9) ? 0 : random.pick([1, 2, 3, 128, 255]);
    head.writeUInt32BE(
      random.chance(0.93) ? bytes.length : random.pick([0, bytes.length + 1, 2 ** 32 - 1, 8 << 20]),
      1,
    );
    return Buffer.concat([head, bytes]);
  };
  const times = random.pick([1, 1, 1, 2, 50]);
  const all = Buffer.concat(Array.from({ length: times }, () => envelope(message)));
  return random.chance(0.05) ? all.subarray(0, random.below(all.length)) : all;
}
