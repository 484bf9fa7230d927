/**
 * A guest that answers every call of both APIs from a grammar: what is right, nearly right, too large, too
 * early, too late, for other streams, twice, or never. It may fail the calls of its own sandbox and nothing
 * else: no answer may be a failure of the server, and none may keep a caller waiting who has gone away.
 */
import { encodeCbor, type CborMap, type CborValue } from '../../../server/src/guest/cbor.ts';
import { FRAME, HEADER_BYTES, writeHeader } from '../../../server/src/guest/frame.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { e2bSandbox, type E2bSandbox } from '../support/e2b-sandbox.ts';
import { takeLink, type Asked } from '../support/lying-guest.ts';
import { PLATFORMS } from '../support/platforms.ts';
import type { Reply, Target } from '../support/target.ts';

const PATIENCE_MS = 700;
/** Dialling too often is answered by a rest of a second. */
const CASES_PER_DIAL = 4;

export const lyingGuest: Campaign = {
  name: 'lying-guest',
  targets: PLATFORMS.map(({ target }) => target),
  async open(target, random) {
    const sandbox = await e2bSandbox(target);
    const link = await takeLink(target, sandbox.id);
    let liar = await link.next();
    let cases = 0;
    return {
      async next() {
        if (liar.ended || cases++ % CASES_PER_DIAL === 0) {
          liar.close();
          liar = await link.next();
        }
        const told: string[] = [];
        liar.onAsked = (asked) => {
          // What is told next is decided when it is asked, so that a seed gives the same again.
          for (const [words, bytes] of answerTo(asked, random)) {
            told.push(`${asked.op} ${words}`);
            liar.raw(bytes).catch(() => {});
          }
        };
        const { words, call } = random.pick(callsOf(target, sandbox));
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const reply = await call(signal).catch((error: unknown) => {
          if (signal.aborted) return undefined;
          // An answer that has begun is cut off when its content turns out to be a lie.
          if (/terminated|aborted|fetch failed/.test(String(error))) return undefined;
          throw error;
        });
        const what = `${words}: ${told.slice(0, 6).join(', ')}`;
        // A guest may say itself that it has failed; of nothing else does the server answer that.
        const itself = told.some((step) => step.includes('reset') || step.includes('frame 7'));
        if (reply?.status === 500 && !itself)
          throw new Error(`${what} → ${reply.status} ${reply.text.slice(0, 300)}`);
        return `${what} → ${reply?.status ?? 'none in time'}`;
      },
      async [Symbol.asyncDispose]() {
        liar.close();
        link.close();
      },
    };
  },
};

interface NamedCall {
  words: string;
  call(signal: AbortSignal): Promise<Reply>;
}

function callsOf(target: Target, { id, headers }: E2bSandbox): NamedCall[] {
  const native = (method: string, path: string, body?: unknown): NamedCall => ({
    words: `${method} ${path}`,
    call: (signal) =>
      target.alice.call(method, `/v1/sandboxes/${id}${path}`, {
        signal,
        ...(body !== undefined && { body }),
      }),
  });
  const unary = (method: string, body: unknown): NamedCall => ({
    words: method,
    call: (signal) => target.stranger('POST', `/${method}`, { body, headers, signal }),
  });
  const stream = (method: string, body: unknown): NamedCall => ({
    words: method,
    call(signal) {
      const json = Buffer.from(JSON.stringify(body));
      const head = Buffer.alloc(5);
      head.writeUInt32BE(json.length, 1);
      const type = { 'content-type': 'application/connect+json' };
      return target.stranger('POST', `/${method}`, {
        body: Buffer.concat([head, json]),
        headers: { ...headers, ...type },
        signal,
      });
    },
  });
  return [
    native('POST', '/exec', { argv: ['true'] }),
    native('POST', '/commands', { argv: ['true'] }),
    native('GET', '/commands'),
    native('GET', '/commands/cmd_x'),
    native('GET', '/commands/cmd_x/output'),
    native('POST', '/commands/cmd_x/signal', { signal: 'SIGTERM' }),
    native('GET', '/files?path=/tmp/x'),
    native('PUT', '/files?path=/tmp/x', 'content'),
    native('DELETE', '/files?path=/tmp/x&recursive=true'),
    native('GET', '/files/stat?path=/tmp/x'),
    native('GET', '/files/list?path=/tmp&depth=10'),
    native('GET', '/files/xattrs?path=/tmp/x'),
    native('GET', '/files/watch?path=/tmp'),
    native('GET', '/files/tar?path=/tmp'),
    native('GET', '/ports'),
    native('GET', '/stats'),
    native('GET', '/status'),
    unary('filesystem.Filesystem/Stat', { path: 'x' }),
    unary('filesystem.Filesystem/ListDir', { path: '/', depth: 3 }),
    unary('filesystem.Filesystem/MakeDir', { path: '/tmp/y' }),
    unary('filesystem.Filesystem/Move', { source: '/tmp/x', destination: '/tmp/y' }),
    unary('filesystem.Filesystem/Remove', { path: '/tmp/x' }),
    unary('filesystem.Filesystem/CreateWatcher', { path: '/tmp' }),
    unary('process.Process/List', {}),
    unary('process.Process/SendSignal', { process: { pid: 7 }, signal: 'SIGNAL_SIGTERM' }),
    stream('process.Process/Start', { process: { cmd: 'true' } }),
    stream('process.Process/Connect', { process: { pid: 7 } }),
    stream('filesystem.Filesystem/WatchDir', { path: '/tmp' }),
    {
      words: 'GET /files',
      call: (signal) => target.stranger('GET', '/files?path=/tmp/x', { headers, signal }),
    },
  ];
}

type Words = [words: string, bytes: Buffer];

/** What it says to one question: some steps of the grammar, the right ones among them. */
function answerTo(asked: Asked, random: Random): Words[] {
  const steps: Words[] = [];
  const count = 1 + random.below(4);
  for (let index = 0; index < count; index++) {
    steps.push(random.chance(0.6) ? messageFor(asked, random) : anything(asked.stream, random));
    if (random.chance(0.3)) steps.push(dataFor(asked.stream, random));
  }
  if (random.chance(0.6)) steps.push(['end', frame(FRAME.end, asked.stream, Buffer.alloc(0))]);
  return steps;
}

const NUMBERS = [
  0,
  1,
  7,
  -1,
  255,
  256,
  65_536,
  2 ** 32,
  8.64e15 + 1,
  Number.MAX_SAFE_INTEGER,
  -Number.MAX_SAFE_INTEGER,
];
const TEXTS = [
  '',
  'x',
  '/',
  '..',
  '/../../etc',
  'a\0b',
  '\u{1b}[2J',
  '/tmp/x',
  'file',
  'directory',
  'symlink',
  'started',
  'exited',
  '__proto__',
  '\u{fffd}',
];

function value(random: Random, depth = 0): CborValue {
  switch (random.below(depth > 3 ? 5 : 8)) {
    case 0:
      return random.pick(NUMBERS);
    case 1:
      return random.pick(TEXTS);
    case 2:
      return random.pick(TEXTS).repeat(random.pick([1, 10, 5000]));
    case 3:
      return random.pick([null, true, false]);
    case 4:
      return Buffer.alloc(random.pick([0, 1, 16, 3000]), 0xff);
    case 5:
      return Array.from({ length: random.pick([0, 1, 3, 300]) }, () =>
        depth === 0 ? info(random) : value(random, depth + 1),
      );
    default:
      return { [random.pick(TEXTS)]: value(random, depth + 1), ...info(random) };
  }
}

function info(random: Random): CborMap {
  const right: CborMap = {
    name: 'x',
    path: '/tmp/x',
    type: random.pick(['file', 'directory', 'symlink']),
    size: 5,
    mode: 0o644,
    uid: 0,
    gid: 0,
    mtimeMs: 1,
  };
  if (random.chance(0.3)) right['target'] = random.pick(TEXTS);
  if (random.chance(0.2)) right[random.pick(Object.keys(right))] = value(random, 3);
  return right;
}

/** The fields that answers have, each with what belongs there or with something else. */
function messageFor({ op, stream }: Asked, random: Random): Words {
  const end = {
    kind: random.pick(['exited', 'signalled', 'timed_out', 'oom_killed', 'lost']),
    code: random.pick(NUMBERS),
    signal: random.pick(NUMBERS),
  };
  const command = {
    id: 'cmd_x',
    pid: 7,
    argv: ['true'],
    pty: false,
    startedAtMs: 1,
    outputBytes: 0,
    keptFrom: 0,
    ...(random.chance(0.5) && end),
  };
  const shapes: Record<string, CborMap> = {
    exec: random.pick<CborMap>([
      { event: 'started', pid: 7, offset: 0, existing: false },
      { event: 'end', ...end },
      { event: 'gap', bytes: random.pick(NUMBERS) },
    ]),
    commands: { commands: Array.from({ length: random.below(3) }, () => command) },
    list: { entries: Array.from({ length: random.pick([0, 1, 30, 300]) }, () => info(random)) },
    watch: random.pick<CborMap>([
      {},
      { events: [{ type: random.pick(['created', 'overflow', 'x']), path: random.pick(TEXTS) }] },
    ]),
    ports: {
      opened: [{ port: random.pick([...NUMBERS, 80]), address: random.pick([...TEXTS, '127.0.0.1']) }],
    },
    xattrs: { attrs: { [random.pick(['e2b.a', ...TEXTS])]: value(random, 3) } },
    stats: { processes: 1, memoryBytes: 1, memoryTotalBytes: 1, oomKills: 0, cpuUsageMs: 1, uptimeMs: 1 },
    mkdir: { created: true },
  };
  shapes['attach'] = shapes['exec']!;
  const map: CborMap = { ...(shapes[op] ?? { info: info(random) }) };
  const names = Object.keys(map);
  if (names.length > 0 && random.chance(0.3)) map[random.pick(names)] = value(random);
  return [`message ${names.join('+')}`, encoded(FRAME.message, stream, map)];
}

function dataFor(stream: number, random: Random): Words {
  const bytes = Buffer.alloc(random.pick([0, 1, 5, 3000, 131_072]), random.pick([0, 10, 120, 255]));
  const one = frame(FRAME.data, stream, bytes, random.pick([0, 1, 2, 3, 4, 255]));
  const count = bytes.length > 5000 ? 1 + random.below(4) : random.pick([1, 10, 2000]);
  return [`${count} × ${bytes.length} bytes`, Buffer.concat(Array.from({ length: count }, () => one))];
}

/** Frames of every kind for this stream and others, some of them no frames at all. */
function anything(stream: number, random: Random): Words {
  const other = random.pick([stream, stream, stream + 2, 1, 0, 2, 4_000_000_000]);
  const type = random.below(13);
  switch (random.below(4)) {
    case 0:
      return [`frame ${type}`, frame(type, other, Buffer.alloc(random.pick([0, 4, 8, 100])))];
    case 1:
      return [
        `frame ${type} with a map`,
        encoded(type, other, {
          code: random.pick(TEXTS),
          message: random.pick(TEXTS),
          details: value(random),
        }),
      ];
    case 2: {
      const noise = Buffer.from(Array.from({ length: random.pick([1, 12, 64]) }, () => random.below(256)));
      return [`noise of ${noise.length} bytes`, noise];
    }
    default:
      return [
        'reset',
        encoded(FRAME.reset, stream, {
          code: random.pick(['not_found', 'unavailable', 'internal', 'x']),
          message: random.pick(TEXTS),
        }),
      ];
  }
}

function encoded(type: number, stream: number, map: CborMap): Buffer {
  try {
    return frame(type, stream, encodeCbor(map));
  } catch {
    // Nested too deeply to be said.
    return frame(type, stream, Buffer.from([0xa0]));
  }
}

function frame(type: number, stream: number, payload: Uint8Array, channel = 0): Buffer {
  const head = Buffer.alloc(HEADER_BYTES);
  writeHeader(head, 0, { length: payload.length, type, channel, stream });
  return Buffer.concat([head, payload]);
}
