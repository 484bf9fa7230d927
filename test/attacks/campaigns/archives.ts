/**
 * Archives from a grammar: tars of volumes with names and links that lead elsewhere, and archives of
 * snapshots that are cut, changed, or have another manifest and another tree. One is refused with a reason of
 * the client's, or becomes what can be used and given back; none is a failure of the server's, writes outside
 * of its tree, or is of another tenant.
 */
import { existsSync } from 'node:fs';
import { readEnvelope, writeEnvelope, type Part } from '../../../server/src/host/archives/envelope.ts';
import { layerOf, type TestEntry } from '../../../server/src/host/images/testing/test-image.ts';
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Target, Tenant } from '../support/target.ts';

const PATIENCE_MS = 20_000;
/** No archive may write here. */
const CANARY = `/tmp/cay-archive-canary-${process.pid}`;
const UP = '../'.repeat(12);
/** Those that are not removed at once. */
const KEPT = 4;
const NAMES = [
  'a',
  'a/b',
  'a/b/c',
  'link',
  `link${CANARY}`,
  `link/${CANARY.slice(1)}`,
  `${UP}${CANARY.slice(1)}`,
  CANARY,
  '.',
  '/',
  '',
  './a/',
  'a//b',
  '.wh.a',
  '.wh..wh..opq',
  'etc/passwd',
  'usr/bin/env',
  'dev/null',
  'proc/1/root',
  'x'.repeat(300),
  'd/'.repeat(600) + 'f',
  `a${'/'.repeat(5000)}b`,
  'a\nb',
  'é',
  'a\\b',
  '__proto__',
];
const TARGETS = [
  '/',
  '..',
  UP,
  CANARY,
  '/proc/self/root',
  '/etc/passwd',
  'link',
  'a',
  'a/b',
  '',
  'x'.repeat(5000),
];
const RECORDS = [
  'SCHILY.xattr.security.capability=x',
  'SCHILY.xattr.trusted.overlay.opaque=y',
  'SCHILY.xattr.user.a=b',
  'GNU.sparse.major=1',
  'size=-1',
  'size=99999999999999999999',
  'path=/etc/shadow',
  'mtime=1e999',
  'uid=4294967296',
];

export const archives: Campaign = {
  name: 'archives',
  targets: [{ backend: 'memory' }, { backend: 'local', runtime: 'runc' }],
  async open(target, random) {
    const { alice, bob } = target;
    const of = async (tenant: Tenant): Promise<Buffer> => {
      const { id } = await tenant.create();
      await tenant.exec(id, ['sh', '-c', `echo ${tenant.name} > /home/user/owner`]);
      const { json, text } = await tenant.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
      if (json?.id === undefined) throw new Error(`No snapshot: ${text}`);
      return download(target, tenant, `/v1/snapshots/${json.id}/archive`);
    };
    const own = await of(alice);
    await of(bob);
    const before = await counted(bob);
    const hasEnvelope = own.subarray(0, 13).toString('latin1') === 'manifest.json';
    const kept: string[] = [];
    return {
      async next() {
        const words =
          target.lacks('volumeArchives') === undefined && random.chance(0.4)
            ? await takeVolume(target, random)
            : await takeSnapshot(target, random, { own, hasEnvelope, kept });
        if (existsSync(CANARY)) throw new Error(`${words}: it wrote to the host`);
        if (random.chance(0.1) && (await counted(bob)) !== before)
          throw new Error(`${words}: another tenant has other snapshots or volumes now`);
        return words;
      },
    };
  },
};

async function counted(tenant: Tenant): Promise<string> {
  const [snapshots, volumes] = [
    await tenant.call('GET', '/v1/snapshots'),
    await tenant.call('GET', '/v1/volumes'),
  ];
  return `${snapshots.json?.snapshots?.length} ${volumes.json?.volumes?.length}`;
}

async function download({ url }: Target, { key }: Tenant, path: string): Promise<Buffer> {
  const response = await fetch(url + path, {
    headers: { authorization: `Bearer ${key}` },
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (response.status !== 200) throw new Error(`${path} was answered ${response.status}`);
  return Buffer.from(await response.arrayBuffer());
}

async function sent(tenant: Tenant, path: string, type: string, body: Buffer, what: string) {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const reply = await tenant.call('POST', path, { body, headers: { 'content-type': type }, signal });
  if ((reply.status >= 500 && ![501, 503, 507].includes(reply.status)) || reply.text.includes('"internal"'))
    throw new Error(`${what} → ${reply.status} ${reply.text.slice(0, 500)}`);
  return reply;
}

async function takeVolume(target: Target, random: Random): Promise<string> {
  const { alice, bob } = target;
  const { words, bytes } = tarFrom(random);
  const name = `v${random.below(1e6)}`;
  const what = `a volume of ${words}`;
  const path = `/v1/volumes/import?name=${name}&sizeBytes=67108864`;
  const { status, json } = await sent(alice, path, 'application/x-tar', bytes, what);
  if (status !== 201) return `${what} → ${status} ${json?.error?.code}`;
  const foreign = await bob.call('GET', `/v1/volumes/${json.id}`);
  if (foreign.status !== 404) throw new Error(`${what}: another tenant's GET was answered ${foreign.status}`);
  // What was taken in can be given back.
  await download(target, alice, `/v1/volumes/${json.id}/archive`);
  const removed = await alice.call('DELETE', `/v1/volumes/${json.id}`);
  if (removed.status !== 204) throw new Error(`${what}: it cannot be removed: ${removed.text.slice(0, 300)}`);
  return `${what} → taken in`;
}

async function takeSnapshot(
  target: Target,
  random: Random,
  { own, hasEnvelope, kept }: { own: Buffer; hasEnvelope: boolean; kept: string[] },
): Promise<string> {
  const { alice, bob } = target;
  const { words, bytes } =
    hasEnvelope && random.chance(0.6) ? await forged(own, random) : changed(own, random);
  const what = `a snapshot with ${words}`;
  const { status, json } = await sent(alice, '/v1/snapshots', 'application/vnd.cay.snapshot', bytes, what);
  if (status !== 201) return `${what} → ${status} ${json?.error?.code}`;
  if (json.memory === true) throw new Error(`${what}: memory that is not signed was taken in`);
  const { id } = json as { id: string };
  const foreign = await bob.call('GET', `/v1/snapshots/${id}`);
  if (foreign.status !== 404) throw new Error(`${what}: another tenant's GET was answered ${foreign.status}`);
  let end = '';
  if (random.chance(0.2)) {
    const made = await alice.call('POST', '/v1/sandboxes', {
      body: { snapshot: id },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (made.status === 500) throw new Error(`${what}: a create was answered ${made.text.slice(0, 500)}`);
    if (made.json?.id !== undefined) await alice.call('DELETE', `/v1/sandboxes/${made.json.id}`);
    end = `, created ${made.status}`;
  }
  kept.push(id);
  if (kept.length > KEPT) {
    const removed = await alice.call('DELETE', `/v1/snapshots/${kept.shift()}`);
    if (removed.status >= 500)
      throw new Error(`${what}: a removal was answered ${removed.text.slice(0, 300)}`);
  }
  return `${what} → taken in${end}`;
}

interface Made {
  words: string;
  bytes: Buffer;
}

/** The same bytes, some of them others, or fewer, or more. */
function changed(own: Buffer, random: Random): Made {
  let bytes = Buffer.from(own);
  const words: string[] = [];
  if (random.chance(0.5)) {
    const count = random.pick([1, 1, 8]);
    for (let left = count; left > 0; left--) {
      const within = random.chance(0.6) ? Math.min(bytes.length, 8192) : bytes.length;
      bytes[random.below(within)] = random.below(256);
    }
    words.push(`${count} bytes changed`);
  }
  if (random.chance(0.3)) {
    bytes = bytes.subarray(0, random.below(bytes.length));
    words.push('cut');
  }
  if (random.chance(0.2)) {
    bytes = Buffer.concat([bytes, random.pick([Buffer.alloc(1), Buffer.alloc(1024), own.subarray(0, 5000)])]);
    words.push('more behind it');
  }
  return { words: words.join(', ') || 'nothing changed', bytes };
}

/** Another manifest, another tree, in an envelope whose digest is right. */
async function forged(own: Buffer, random: Random): Promise<Made> {
  const reader = readEnvelope(
    (async function* () {
      yield own;
    })(),
  );
  const manifest = JSON.parse((await reader.manifest(4 << 20)).toString()) as Record<string, unknown>;
  const words: string[] = [];
  const others: readonly [string, () => unknown][] = [
    ['sandbox', () => random.pick([`sbx_${'a'.repeat(20)}`, '../x', '', 7, null])],
    ['snapshot', () => random.pick([`snap_${'a'.repeat(20)}`, '..', null])],
    ['runtime', () => random.pick(['process', 'runsc', 'none', '', '../runc', null])],
    ['compression', () => random.pick(['none', 'zstd', 'gzip', null])],
    [
      'memory',
      () => ({
        compatibility: 'x',
        files: [{ name: random.pick(['a', '../a', 'a'.repeat(300)]), bytes: 1 }],
      }),
    ],
    ['whole', () => random.pick([true, false, 'yes'])],
    ['__proto__', () => ({ x: 1 })],
    ['format', () => random.pick([0, 99, 'x'])],
    [
      'spec',
      () => ({
        ...(manifest['spec'] as object),
        ...random.pick<object>([
          { template: '../../etc' },
          { template: 'none' },
          { runtime: 'process' },
          { user: 'root:root:root' },
          { workdir: '/proc/1/root' },
          { limits: { pids: null, memoryBytes: null, diskBytes: null } },
          { mounts: [{ type: 'host', source: '/', path: '/h' }] },
          { mounts: [{ type: 'volume', volume: 'vol_aaaaaaaaaaaaaaaaaaaa', path: '/v' }] },
          { env: { 'a b': 'x' } },
          { mounts: 7 },
        ]),
      }),
    ],
  ];
  for (let count = random.pick([0, 1, 1, 2]); count > 0; count--) {
    const [name, value] = random.pick(others);
    const given = value();
    Object.defineProperty(manifest, name, {
      value: given,
      enumerable: true,
      configurable: true,
      writable: true,
    });
    words.push(`${name} ${JSON.stringify(given).slice(0, 80)}`);
  }
  let tree: Part['content'] = reader.part('tree');
  if (random.chance(0.6)) {
    const made = tarFrom(random);
    manifest['compression'] = 'none';
    if (random.chance(0.7)) manifest['whole'] = true;
    words.push(`a tree of ${made.words}`);
    tree = (async function* () {
      yield made.bytes;
    })();
  }
  const text = Buffer.from(`${JSON.stringify(manifest, undefined, 2)}\n`);
  const bytes = Buffer.concat(await Array.fromAsync(writeEnvelope(text, [{ name: 'tree', content: tree }])));
  return { words: words.join(', ') || 'a new digest', bytes };
}

function tarFrom(random: Random): Made {
  const entries: TestEntry[] = Array.from({ length: random.pick([0, 1, 3, 8, 200]) }, (_, at) => {
    const type = random.pick(['file', 'file', 'directory', 'symlink', 'hardlink'] as const);
    return {
      name: random.chance(0.7) ? random.pick(NAMES) : `f${at}`,
      type,
      ...((type === 'symlink' || type === 'hardlink') && { target: random.pick(TARGETS) }),
      mode: random.pick([0o644, 0o755, 0o4755, 0o7777, 0]),
      uid: random.pick([0, 1000, 65_535, 65_536, 2 ** 31]),
      modifiedAtMs: random.pick([0, 1e12, -1e12, 8e15]),
      content: type === 'file' ? random.pick(['', 'x', 'y'.repeat(70_000)]) : '',
    };
  });
  const parts: Buffer[] = [];
  for (const entry of entries) {
    if (random.chance(0.1)) parts.push(extended(random));
    try {
      // Without the end mark, which stands once.
      parts.push(layerOf([entry]).subarray(0, -1024));
    } catch {
      // No header can say that.
    }
  }
  let bytes = Buffer.concat([...parts, Buffer.alloc(1024)]);
  const isChanged = random.chance(0.2);
  if (isChanged)
    for (let count = random.below(6); count > 0; count--)
      bytes[random.below(Math.min(bytes.length, 4096))] = random.below(256);
  const isCut = random.chance(0.1);
  if (isCut) bytes = bytes.subarray(0, random.below(bytes.length));
  return {
    words: `${entries.length} entries (${entries
      .slice(0, 3)
      .map(
        ({ name, type, target }) =>
          `${type} ${name.slice(0, 30)}${target === undefined ? '' : ` to ${target.slice(0, 30)}`}`,
      )
      .join('; ')})${isChanged ? ', changed' : ''}${isCut ? ', cut' : ''}`,
    bytes,
  };
}

/** A header with records for the entry behind it. */
function extended(random: Random): Buffer {
  const record = random.pick(RECORDS);
  let length = record.length + 3;
  while (String(length).length + record.length + 2 !== length) length++;
  const body = `${random.chance(0.9) ? length : random.pick([0, 5, 99_999])} ${record}\n`;
  const header = layerOf([{ name: 'pax', content: body }]);
  const sum = (block: Buffer) =>
    block.reduce((all, byte, at) => all + (at >= 148 && at < 156 ? 32 : byte), 0);
  header.write('x', 156);
  header.write(`${sum(header.subarray(0, 512)).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header.subarray(0, -1024);
}
