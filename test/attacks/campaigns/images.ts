/**
 * A registry that answers from a grammar: documents, tokens, layers and redirects that are right, nearly
 * right, too long, too short, for others, slow, or nothing at all. It may fail the pulls that name it, and
 * nothing else: no pull is a failure of the server's, nothing is written outside of a tree, no address is
 * reached that the operator did not name.
 */
import { existsSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import {
  startHostileRegistry,
  type HostileRegistry,
} from '../../../server/src/host/images/testing/hostile-registry.ts';
import {
  imageOf,
  indexOf,
  layerOf,
  sha256,
  type TestEntry,
  type TestImage,
} from '../../../server/src/host/images/testing/test-image.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';

const PATIENCE_MS = 1_500;
/** No name in a layer may lead here. */
const CANARY = `/tmp/cay-image-canary-${process.pid}`;
const UP = '../'.repeat(12);
const NAMES = [
  'etc/passwd',
  'etc/group',
  'bin/sh',
  `${UP}${CANARY}`,
  CANARY,
  'a/../../../../../../../../../../..' + CANARY,
  'link',
  `link${CANARY}`,
  `link/${CANARY.slice(1)}`,
  '.wh.etc',
  '.wh..wh..opq',
  'etc/.wh..wh..opq',
  `.wh.${UP}${CANARY}`,
  '.wh.',
  '.wh...',
  '',
  '/',
  '.',
  'x'.repeat(300),
  `${'d/'.repeat(300)}f`,
  'a\nb',
  'etc/passwd/x',
  'proc/1/root',
];
const TARGETS = ['/', '..', UP, CANARY, '/proc/self/root', '/etc', 'link', 'etc/passwd', `${UP}tmp`, ''];
const TYPES = ['file', 'directory', 'symlink', 'hardlink'] as const;

type Answer = (request: IncomingMessage, response: ServerResponse) => boolean;
type Named = [words: string, answer: Answer];

let registry: HostileRegistry;
/** Is reached by nothing: no operator named it. */
let inside: Server;
let insideHits = 0;

export const images: Campaign = {
  name: 'images',
  targets: [{ backend: 'local', runtime: 'runc' }],
  async flags() {
    registry = await startHostileRegistry();
    insideHits = 0;
    inside = createServer((_request, response) => {
      insideHits++;
      response.end('the secret of a private network');
    });
    await new Promise<void>((done) => inside.listen(0, '127.0.0.1', done));
    const quota = 'image-bytes=256m';
    return [
      '--insecure-registry',
      registry.address,
      '--max-image-size',
      '64m',
      '--image-store',
      '512m',
      '--default-quota',
      quota,
    ];
  },
  async open(target, random) {
    const other = `127.0.0.1:${(inside.address() as AddressInfo).port}`;
    let number = 0;
    return {
      async next() {
        const repository = `r${number++ % 50}/image`;
        const made = imageFrom(random);
        registry.serve(repository, '1', made.image);
        const planned = Array.from({ length: random.pick([0, 1, 1, 2]) }, () =>
          answerFrom(random, made.image, other),
        );
        registry.intercept = (request, response) => planned.some(([, answer]) => answer(request, response));
        const what = `${made.words}; ${planned.map(([words]) => words).join(', ') || 'answered as it is'}`;
        const signal = AbortSignal.timeout(PATIENCE_MS);
        const reply = await target.alice
          .call('POST', '/v1/images/pull', { body: { image: `${registry.address}/${repository}:1` }, signal })
          .catch((error: unknown) => {
            if (signal.aborted) return undefined;
            throw new Error(`${what}: ${String(error)}`);
          });
        if (existsSync(CANARY)) throw new Error(`${what}: ${CANARY} was made on the host`);
        if (insideHits > 0) throw new Error(`${what}: an address was reached that no operator named`);
        if (reply?.text.includes('the secret of a private'))
          throw new Error(`${what}: what a private address said is in the answer`);
        if (reply && (reply.status === 500 || /"code":"internal"/.test(reply.text)))
          throw new Error(`${what} → ${reply.status} ${reply.text.slice(-600)}`);
        const outcome = reply
          ? (/"code":"(\w+)"/.exec(reply.text)?.[1] ?? String(reply.status))
          : 'none in time';
        return `${what} → ${outcome}`;
      },
      async [Symbol.asyncDispose]() {
        inside.closeAllConnections();
        inside.close();
        await registry.stop();
      },
    };
  },
};

function imageFrom(random: Random): { words: string; image: TestImage } {
  const hostile = random.chance(0.5);
  const layers = Array.from({ length: 1 + random.below(3) }, () => {
    const entries: TestEntry[] = Array.from({ length: 1 + random.below(5) }, () => {
      const type = random.pick(TYPES);
      return {
        name: hostile ? random.pick(NAMES) : `f${random.below(5)}`,
        type,
        ...((type === 'symlink' || type === 'hardlink') && { target: random.pick(TARGETS) }),
        mode: random.pick([0o644, 0o755, 0o4755, 0o7777, 0]),
        uid: random.pick([0, 1000, 65_534, 65_535]),
        content: type === 'file' ? 'x'.repeat(random.pick([0, 1, 600, 70_000])) : '',
      };
    });
    try {
      return mangled(layerOf(entries), random);
    } catch {
      // No header can say that.
      return layerOf([{ name: 'f', content: 'x' }]);
    }
  });
  const config = {
    User: random.pick(['', 'root', '0:0', 'nobody', '4294967295', '../x', 'a:b:c', '-1']),
    WorkingDir: random.pick(['', '/', '/work', '..', '../../..', 'rel', '/proc/1/root']),
    Env: random.pick([
      [],
      ['A=1'],
      ['A'],
      ['=x'],
      ['A=\0'],
      ['PATH='],
      Array.from({ length: 3000 }, (_, at) => `K${at}=v`),
    ]),
    Volumes: random.pick<Record<string, object>>([
      {},
      { '/vol': {} },
      { '../../x': {} },
      { [CANARY]: {} },
      { '': {} },
    ]),
    Cmd: random.pick([[], ['sh'], ['\0']]),
  };
  const compress = random.pick(['gzip', 'zstd', 'none'] as const);
  const diffIds = random.chance(0.1) ? { diffIds: layers.map(() => `sha256:${'0'.repeat(64)}`) } : {};
  const image = imageOf(layers, { config, compress, ...diffIds });
  return { words: `${layers.length} ${hostile ? 'hostile' : 'plain'} layers, ${compress}`, image };
}

/** Bytes of the archive changed, cut, or added. */
function mangled(layer: Buffer, random: Random): Buffer {
  if (random.chance(0.7)) return layer;
  const copy = Buffer.from(layer);
  for (let count = random.below(6); count > 0; count--)
    copy[random.below(Math.min(copy.length, 2048))] = random.below(256);
  return random.chance(0.3) ? copy.subarray(0, random.below(copy.length)) : copy;
}

/**
 * What it answers to some of the requests of a pull. All of it is decided now, so that a seed gives it again.
 */
function answerFrom(random: Random, { manifest, digest }: TestImage, other: string): Named {
  const where = random.pick(['/manifests/', '/blobs/', '/v2/']);
  const kind = random.below(9);
  const at = (request: IncomingMessage) => request.url!.includes(where);
  const once = (
    words: string,
    answer: (request: IncomingMessage, response: ServerResponse) => void,
  ): Named => [
    `${where} ${words}`,
    (request, response) => {
      if (!at(request)) return false;
      answer(request, response);
      return true;
    },
  ];
  switch (kind) {
    case 0: {
      const status = random.pick([200, 204, 206, 301, 400, 401, 403, 404, 416, 429, 500, 503, 599]);
      const body = random.pick([
        '',
        '{}',
        'null',
        '[]',
        '{"errors":[{"code":"DENIED"}]}',
        '\0'.repeat(100),
        'x'.repeat(100_000),
      ]);
      const after = random.pick(['0', '1', '86400', '-1', 'x']);
      return once(`${status} with ${body.length} bytes`, (_request, response) =>
        response.writeHead(status, { 'retry-after': after }).end(status === 204 ? undefined : body),
      );
    }
    case 1: {
      const location = random.pick([
        `http://${other}/secret`,
        'http://169.254.169.254/latest/meta-data',
        'http://127.0.0.1:22/',
        'http://[::1]/',
        'http://localhost/',
        'file:///etc/passwd',
        'gopher://x',
        '//evil',
        '',
        'http://user:pw@127.0.0.1/',
        `http://0x7f000001:${other.split(':')[1]}/secret`,
        `http://2130706433:${other.split(':')[1]}/secret`,
        'http://%',
      ]);
      return once(`redirects to ${location}`, (_request, response) =>
        response.writeHead(307, { location }).end(),
      );
    }
    case 2:
      return once('redirects to itself', (request, response) =>
        response.writeHead(302, { location: request.url! }).end(),
      );
    case 3: {
      const realm = random.pick([
        `http://${other}/token`,
        'http://169.254.169.254/token',
        'https://127.0.0.1:1/token',
        'file:///etc/passwd',
        '',
        'x'.repeat(9000),
      ]);
      const challenge = random.pick([
        `Bearer realm="${realm}",service="x",scope="y"`,
        `Bearer realm=${realm}`,
        'Bearer',
        'Basic realm="x"',
        `Bearer realm="${realm}`,
        'Digest x, Bearer y, '.repeat(200),
        ',,,=",',
      ]);
      return once(`challenges ${challenge.slice(0, 60)}`, (_request, response) =>
        response.writeHead(401, { 'www-authenticate': challenge }).end(),
      );
    }
    case 4: {
      const nested = [
        indexOf([{ image: { manifest, digest, blobs: new Map() }, architecture: 'amd64' }]),
        Buffer.from(
          `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[${'{},'.repeat(500)}{}]}`,
        ),
        Buffer.from('['.repeat(50_000)),
        Buffer.from(
          JSON.stringify({
            ...(JSON.parse(manifest.toString()) as object),
            layers: Array.from({ length: 5000 }, () => ({ mediaType: 'x', digest, size: 1 })),
          }),
        ),
        Buffer.from(
          manifest.toString().replace(/"size":\d+/g, `"size":${random.pick([-1, 0, 1e30, 9e15, 1.5])}`),
        ),
        Buffer.from(
          manifest.toString().replaceAll('sha256:', random.pick(['sha512:', '', 'sha256:../../', 'SHA256:'])),
        ),
        Buffer.from('{"__proto__":{"x":1},"schemaVersion":1}'),
      ];
      const body = random.pick(nested);
      return once(`another document of ${body.length} bytes`, (_request, response) =>
        response.writeHead(200, { 'docker-content-digest': random.chance(0) ? '' : sha256(body) }).end(body),
      );
    }
    case 5:
      return once('says nothing', () => {});
    case 6: {
      const bytes = random.pick([0, 1, 500]);
      return once(`breaks off after ${bytes} bytes`, (_request, response) => {
        response
          .writeHead(200, { 'content-length': '100000' })
          .write(Buffer.alloc(bytes, 1), () => response.destroy());
        if (bytes === 0) response.destroy();
      });
    }
    case 7:
      return once('never ends', (_request, response) => {
        response.writeHead(200);
        const piece = random.chance(0) ? Buffer.alloc(0) : gzipSync(Buffer.alloc(1 << 20));
        const send = () => {
          while (!response.destroyed && response.write(piece));
        };
        response.on('drain', send);
        send();
      });
    default: {
      const range = random.pick(['bytes 5-1/3', 'bytes 0-99999999999/100000000000', 'x', 'bytes */*']);
      return once(`answers a part: ${range}`, (_request, response) =>
        response.writeHead(206, { 'content-range': range }).end('xyz'),
      );
    }
  }
}
