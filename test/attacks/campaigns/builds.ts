/**
 * Dockerfiles from a grammar, and contexts with names and links that lead elsewhere. A build fails with a
 * reason of the client's or makes a template; none is a failure of the server's, none reads a file of the
 * host, and another tenant learns nothing of it.
 */
import { gzipSync } from 'node:zlib';
import { layerOf, type TestEntry } from '../../../server/src/host/images/testing/test-image.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Target } from '../support/target.ts';

const PATIENCE_MS = 10_000;
/** Builds that are read to their end. Others are cancelled soon, or left. */
const READ_TO_END = 0.4;
const UP = '../'.repeat(12);
const CANARY = 'host-canary-that-no-build-reads';
const PATHS = [
  '.',
  'a',
  'a/b',
  'link',
  'link/passwd',
  `${UP}etc/hostname`,
  '/etc/hostname',
  'no-such',
  '*',
  '[',
  '**/x',
  '',
  '/',
  'a\\b',
];
const WORDS = [
  'x',
  '$A',
  '${A}',
  '${A:-${B:-c}}',
  '${A',
  '$',
  '\\',
  '"',
  "'",
  '"a b"',
  '${A:?no}',
  '${'.repeat(200),
  '\0',
  'é',
  '#',
  '$A$A$A$A$A$A$A$A',
];
const FLAGS = [
  '',
  '',
  '',
  '--from=s ',
  '--from=0 ',
  '--from=base ',
  '--from=99 ',
  '--chown=0:0 ',
  '--chmod=7777 ',
  '--link ',
  '--x=y ',
  '--mount=type=secret,id=k ',
  '--mount=type=bind,source=/,target=/h ',
  '--platform=x ',
];

export const builds: Campaign = {
  name: 'builds',
  targets: [{ backend: 'memory' }],
  open(target, random) {
    const contexts: string[] = [];
    return Promise.resolve({
      async next() {
        if (contexts.length === 0 || random.chance(0.3)) return upload(target, random, contexts);
        return build(target, random, contexts);
      },
    });
  },
};

async function upload({ alice }: Target, random: Random, contexts: string[]): Promise<string> {
  const { words, bytes } = contextFrom(random);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const reply = await alice.call('POST', '/v1/builds/contexts', {
    body: bytes,
    headers: { 'content-type': 'application/x-tar' },
    signal,
  });
  const what = `context of ${words} → ${reply.status}`;
  if (reply.status >= 500 && reply.status !== 503) throw new Error(`${what} ${reply.text.slice(0, 500)}`);
  const digest = reply.json?.digest as string | undefined;
  if (digest !== undefined) contexts.push(digest);
  else if (contexts.length === 0) contexts.push(`sha256:${'0'.repeat(64)}`);
  return what;
}

async function build(target: Target, random: Random, contexts: readonly string[]): Promise<string> {
  const { alice, bob } = target;
  const dockerfile = dockerfileFrom(random);
  const foreign = random.chance(0.1);
  const started = await (foreign ? bob : alice).call('POST', '/v1/builds', {
    body: {
      name: `t${random.below(6)}`,
      dockerfile,
      ...(random.chance(0.8) && { context: random.pick(contexts) }),
      ...(random.chance(0.3) && { args: { A: random.pick(WORDS).replaceAll('\0', '') } }),
      ...(random.chance(0.2) && { secrets: { k: CANARY } }),
      ...(random.chance(0.1) && { target: random.pick(['s', '0', 'none', '__proto__']) }),
      noCache: random.chance(0.2),
      timeoutMs: 5_000,
    },
  });
  const what = `${JSON.stringify(dockerfile.slice(0, 500))}${foreign ? ' with the context of another' : ''}`;
  if (started.status >= 500 && started.status !== 503)
    throw new Error(`${what} → ${started.status} ${started.text.slice(0, 500)}`);
  const id = started.json?.id as string | undefined;
  if (id === undefined) return `${what} → ${started.status} ${started.json?.error?.code}`;
  const side = foreign ? bob : alice;
  const other = foreign ? alice : bob;
  for (const [method, path] of [
    ['GET', `/v1/builds/${id}`],
    ['GET', `/v1/builds/${id}/log`],
    ['DELETE', `/v1/builds/${id}`],
  ] as const) {
    const { status } = await other.call(method, path, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (status !== 404) throw new Error(`${what}: another tenant's ${method} was answered ${status}`);
  }
  if (!random.chance(READ_TO_END)) {
    if (random.chance(0.8)) await side.call('DELETE', `/v1/builds/${id}`);
    return `${what} → cancelled`;
  }
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const log = await side.call('GET', `/v1/builds/${id}/log`, { signal }).catch((error: unknown) => {
    if (signal.aborted) return undefined;
    throw error;
  });
  if (log?.text.includes(CANARY)) throw new Error(`${what}: a secret is in the log`);
  const { json } = await side.call('GET', `/v1/builds/${id}`);
  const message = String(json?.failure?.message ?? '');
  if (/The server failed|internal/.test(message)) throw new Error(`${what}: ${message}`);
  await side.call('DELETE', `/v1/builds/${id}`);
  return `${what} → ${json?.state} ${message.slice(0, 200)}`;
}

function dockerfileFrom(random: Random): string {
  if (random.chance(0.05)) return noise(random, 300) || '\n';
  const lines = [
    random.pick([
      'FROM base',
      'FROM base',
      'FROM base AS s',
      'ARG B=base\nFROM ${B}',
      'FROM t1',
      'FROM scratch',
      `FROM ${random.pick(WORDS)}`,
    ]),
  ];
  for (let count = random.pick([0, 1, 2, 4, 8]); count > 0; count--) lines.push(instruction(random));
  if (random.chance(0.1)) lines.push('FROM base', instruction(random));
  if (random.chance(0.1))
    lines.unshift(random.pick(['# escape=`', '# syntax=x', '# check=error=true', '\ufeff']));
  return lines.join(random.pick(['\n', '\n', '\r\n'])).replaceAll('\0', random.chance(0.1) ? '\0' : '');
}

function instruction(random: Random): string {
  const [path, other, word, flag] = [
    random.pick(PATHS),
    random.pick(PATHS),
    random.pick(WORDS),
    random.pick(FLAGS),
  ];
  return random.pick([
    `RUN ${flag}true`,
    `RUN ${flag}["true", ${JSON.stringify(word)}]`,
    `RUN ${flag}<<E\necho ${word}\nE`,
    'RUN <<A <<B\nx\nA\ny\nB',
    'RUN <<NEVER\nx',
    `RUN echo ${word}`,
    'RUN cat /run/secrets/k; true',
    `COPY ${flag}${path} ${other}`,
    `COPY ${flag}["${path}", "${other}"]`,
    `COPY <<E /tmp/x\n${word}\nE`,
    `ADD ${flag}${path} ${other}`,
    `ADD ${random.pick(['http://127.0.0.1:22/x', 'http://169.254.169.254/', 'file:///etc/passwd', 'git@x:y', 'https://x/y.git#a:b'])} ${other}`,
    `ENV A=${word}`,
    `ENV ${word} ${word}`,
    `ENV A=\${A}\${A}\${A}\${A}\${A}\${A}\${A}\${A}`,
    `ARG A=${word}`,
    `WORKDIR ${path}`,
    `USER ${random.pick(['root', 'user', '0:0', '../x', '4294967295', word])}`,
    `SHELL ${random.pick(['["sh", "-c"]', '[]', 'sh', '["\\u0000"]'])}`,
    `CMD ${random.pick(['["x"]', 'x', '[', '{}'])}`,
    `LABEL ${word}=${word}`,
    `EXPOSE ${random.pick(['80', '0', '99999', '80/tcp', 'x', '1-65535'])}`,
    `ONBUILD ${random.pick(['RUN true', 'ONBUILD RUN true', 'FROM x'])}`,
    `HEALTHCHECK ${word}`,
    `STOPSIGNAL ${word}`,
    `VOLUME ${path}`,
    `RUN ${'a \\\n'.repeat(random.pick([1, 500]))}`,
    `${word} ${word}`,
    `# ${word}`,
  ]);
}

function contextFrom(random: Random): { words: string; bytes: Buffer } {
  const names = [
    'a',
    'a/b',
    'link',
    'link/passwd',
    '.dockerignore',
    `${UP}tmp/cay-x`,
    '/etc/x',
    './a',
    'a/',
    'x'.repeat(300),
    'é',
    'a\\b',
    '__proto__',
    '',
  ];
  const entries: TestEntry[] = Array.from({ length: random.pick([1, 3, 8, 400]) }, (_, at) => {
    const type = random.pick(['file', 'file', 'directory', 'symlink', 'hardlink'] as const);
    return {
      name: random.chance(0.6) ? random.pick(names) : `f${at}`,
      type,
      ...((type === 'symlink' || type === 'hardlink') && {
        target: random.pick(['/etc', '..', UP, 'link', 'a', '/proc/self/root', '']),
      }),
      mode: random.pick([0o644, 0o4755, 0o7777, 0]),
      uid: random.pick([0, 1000, 65_535]),
      content:
        type === 'file' ? random.pick(['', 'x', '*\n!a\n[', '**/'.repeat(300), 'y'.repeat(70_000)]) : '',
    };
  });
  let bytes: Buffer;
  try {
    bytes = layerOf(entries);
  } catch {
    // No header can say that.
    bytes = layerOf([{ name: 'a', content: 'x' }]);
  }
  const changed = random.chance(0.3);
  if (changed)
    for (let count = random.below(8); count > 0; count--)
      bytes[random.below(Math.min(bytes.length, 4096))] = random.below(256);
  if (random.chance(0.1)) bytes = bytes.subarray(0, random.below(bytes.length));
  if (random.chance(0.05)) bytes = Buffer.from(noise(random, 2000), 'latin1');
  const packed = random.chance(0.3);
  if (packed) bytes = gzipSync(random.chance(0.05) ? Buffer.alloc(200 << 20) : bytes);
  if (packed && random.chance(0.1)) bytes = bytes.subarray(0, random.below(bytes.length));
  return {
    words: `${entries.length} entries${changed ? ', changed' : ''}${packed ? ', gzip' : ''}, ${bytes.length} bytes`,
    bytes,
  };
}

function noise(random: Random, most: number): string {
  return Array.from({ length: random.below(most) }, () => String.fromCharCode(random.below(256))).join('');
}
