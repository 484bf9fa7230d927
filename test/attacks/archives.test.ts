/** A tenant hands the server archives that it made itself. */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { compress, decompress } from '../../server/src/host/archives/compression.ts';
import { readEnvelope, writeEnvelope, type Part } from '../../server/src/host/archives/envelope.ts';
import { encodeHeader, paddingOf } from '../../server/src/lib/tar/header.ts';
import { onEachPlatform, requireAbility } from './support/platforms.ts';
import { SCALE } from './support/scale.ts';
import type { Reply, Target, Tenant } from './support/target.ts';

const MiB = 1024 ** 2;

interface Manifest {
  [field: string]: unknown;
  memory?: { compatibility: string; files: { name: string; bytes: number }[] };
}

interface Opened {
  manifest: Manifest;
  tree: Buffer;
  /** Files of the memory image, unpacked. */
  memory: Map<string, Buffer>;
  signature?: string | undefined;
}

async function opened(archive: Uint8Array): Promise<Opened> {
  const envelope = readEnvelope(Readable.from([archive]));
  const manifest = JSON.parse((await envelope.manifest(4 * MiB)).toString()) as Manifest;
  const tree = Buffer.concat(await Array.fromAsync(envelope.part('tree')));
  const memory = new Map<string, Buffer>();
  for (const { name } of manifest.memory?.files ?? []) {
    memory.set(
      name,
      Buffer.concat(await Array.fromAsync(decompress(envelope.part(`memory/${name}`), 'zstd'))),
    );
  }
  const { signature } = await envelope.end();
  return { manifest, tree, memory, signature };
}

/** With a digest that fits, as everybody can compute it. */
async function closed({ manifest, tree, memory, signature }: Opened): Promise<Buffer> {
  const parts: Part[] = [
    { name: 'tree', content: Readable.from([tree]) },
    ...[...memory].map(([name, bytes]) => ({
      name: `memory/${name}`,
      content: compress(Readable.from([bytes]), 'zstd'),
    })),
  ];
  const sign = signature === undefined ? undefined : () => signature;
  const text = Buffer.from(`${JSON.stringify(manifest, undefined, 2)}\n`);
  return Buffer.concat(await Array.fromAsync(writeEnvelope(text, parts, sign)));
}

const take = (tenant: Tenant, archive: Uint8Array, query = ''): Promise<Reply> =>
  tenant.call('POST', `/v1/snapshots${query}`, {
    body: archive,
    headers: { 'content-type': 'application/vnd.cay.snapshot' },
  });

async function exported(target: Target, tenant: Tenant, snapshot: string): Promise<Buffer> {
  const url = `${target.url}/v1/snapshots/${snapshot}/archive`;
  const response = await fetch(url, { headers: { authorization: `Bearer ${tenant.key}` } });
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

onEachPlatform('a tenant imports what it made itself', (platform) => {
  let target: Target;
  let own: Buffer;
  let sandbox: string;

  beforeAll(async () => {
    target = await platform.start();
    if (target.lacks('snapshots')) return;
    const { alice } = target;
    ({ id: sandbox } = await alice.create());
    await alice.exec(sandbox, ['sh', '-c', 'echo kept > /home/user/file']);
    await alice.call('POST', `/v1/sandboxes/${sandbox}/commands`, { body: { argv: ['sleep', '4242'] } });
    const taken = await alice.call('POST', `/v1/sandboxes/${sandbox}/snapshots`, {
      body: { memory: target.lacks('memorySnapshots') === undefined },
    });
    expect(taken.status, taken.text).toBe(201);
    own = await exported(target, alice, taken.json.id);
  }, 90_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  const runs = async (tenant: Tenant, snapshot: string) => {
    const { id } = await tenant.create({ snapshot, memory: true } as never);
    const { exitCode } = await tenant.exec(id, ['pgrep', '-f', 'sleep 4242']);
    await tenant.call('DELETE', `/v1/sandboxes/${id}`);
    return exitCode === 0;
  };

  it('has the memory of its own archive, whole, again', async (context) => {
    requireAbility(context, target, 'memorySnapshots');
    const { status, json, text } = await take(target.alice, own);
    expect(status, text).toBe(201);
    expect(json).toMatchObject({ memory: true, memoryDropped: null, cause: 'import' });
    expect(json.bytes).toBeGreaterThan(0);
    expect(await runs(target.alice, json.id)).toBe(true);
  });

  it('does not get a changed memory image to the runtime, with or without a signature', async (context) => {
    requireAbility(context, target, 'memorySnapshots');
    const { alice } = target;
    for (const signed of [false, true]) {
      const archive = await opened(own);
      const image = archive.memory.get('checkpoint.img') ?? [...archive.memory.values()][0]!;
      image[Math.floor(image.length / 2)]! ^= 0xff;
      if (!signed) delete archive.signature;
      const { status, json, text } = await take(alice, await closed(archive));
      expect(status, text).toBe(201);
      expect(json).toMatchObject({ memory: false, memoryDropped: signed ? 'foreign' : 'unsigned' });
      const withMemory = await alice.call('POST', '/v1/sandboxes', {
        body: { snapshot: json.id, memory: true },
      });
      expect(withMemory.status).toBeGreaterThanOrEqual(400);
      // Its files are all there.
      const made = await alice.create({ snapshot: json.id } as never);
      expect((await alice.exec(made.id, ['cat', '/home/user/file'])).stdout).toBe('kept\n');
      await alice.call('DELETE', `/v1/sandboxes/${made.id}`);
    }
    // No image of what was left out stays on the disk.
    const images = await readdir(join(target.dataDir, 'engine/images'));
    const { json } = await alice.call('GET', '/v1/snapshots');
    expect(images.length).toBeLessThanOrEqual(
      json.snapshots.filter(({ memory }: { memory: boolean }) => memory).length,
    );
    await target.requireAlive();
  });

  it('may not allow foreign memory itself; an admin may', async (context) => {
    requireAbility(context, target, 'memorySnapshots');
    const archive = await opened(own);
    delete archive.signature;
    const unsigned = await closed(archive);
    expect((await take(target.alice, unsigned, '?allowForeignMemory=1')).status).toBe(403);
    const { status, json, text } = await take(target.admin, unsigned, '?allowForeignMemory=1');
    expect(status, text).toBe(201);
    expect(json).toMatchObject({ memory: true, memoryDropped: null });
    expect(await runs(target.admin, json.id)).toBe(true);
  });

  it('keeps its processes through an archive of the server itself', { timeout: 60_000 }, async (context) => {
    requireAbility(context, target, 'memorySnapshots');
    const { alice } = target;
    const paused = await alice.call('POST', `/v1/sandboxes/${sandbox}/pause`, { body: { as: 'archived' } });
    expect(paused.json.pausedAs, paused.text).toBe('archived');
    expect((await alice.call('POST', `/v1/sandboxes/${sandbox}/resume`, { body: {} })).status).toBe(200);
    expect((await alice.exec(sandbox, ['pgrep', '-f', 'sleep 4242'])).exitCode).toBe(0);
  });

  it(
    'cannot unpack more than its quota, however small the archive, and nothing of it stays',
    { timeout: 60_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      const { alice } = target;
      await target.admin.call('PATCH', `/v1/projects/${alice.project}`, {
        body: { quota: { uploadBytes: 32 * MiB } },
      });
      const size = 1024 * MiB;
      const bomb = async function* () {
        const entry = {
          name: 'bomb',
          type: 'file',
          sizeBytes: size,
          mode: 0o644,
          uid: 0,
          gid: 0,
          modifiedAtMs: 0,
          target: '',
        } as const;
        yield encodeHeader(entry);
        const piece = Buffer.alloc(MiB, 0x41);
        for (let sent = 0; sent < size; sent += piece.length) yield piece;
        yield Buffer.alloc(paddingOf(size) + 1024);
      };
      const archive = await opened(own);
      delete archive.manifest.memory;
      archive.memory.clear();
      archive.tree = Buffer.concat(await Array.fromAsync(compress(bomb(), 'zstd')));
      const small = await closed(archive);
      expect(small.length).toBeLessThan(4 * MiB);
      const before = await statfs(target.dataDir);
      // Docker keeps its files elsewhere; there the reply alone tells.
      const engine = join(target.dataDir, 'engine');
      const trees = async () =>
        existsSync(engine)
          ? (await readdir(engine, { recursive: true })).filter((name) => name.includes('bomb')).length
          : 0;
      const replies = await Promise.all([take(alice, small), take(alice, small), take(alice, small)]);
      for (const { status, json, text } of replies) {
        expect(status, text).toBe(429);
        expect(json.error.details).toMatchObject({
          quota: 'uploadBytes',
          limit: 32 * MiB,
          usedBy: { imports: expect.any(Number) },
        });
      }
      const after = await statfs(target.dataDir);
      expect((before.bavail - after.bavail) * after.bsize).toBeLessThan(500 * MiB);
      await expect.poll(trees, { timeout: 10_000 }).toBe(0);
      await target.admin.call('PATCH', `/v1/projects/${alice.project}`, {
        body: { quota: { uploadBytes: null } },
      });
      await target.requireAlive();
    },
  );

  it(
    'says in the manifest what it likes, and neither breaks out nor touches another’s',
    { timeout: 60_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      const { alice, bob } = target;
      const theirs = await bob.create();
      await bob.call('POST', `/v1/sandboxes/${theirs.id}/snapshots`, { body: { name: 'theirs' } });
      const seen = async () =>
        JSON.stringify([
          (await bob.call('GET', '/v1/snapshots')).json,
          (await bob.call('GET', `/v1/sandboxes/${theirs.id}/tree`)).json,
        ]);
      const before = await seen();
      const lies: ((manifest: Manifest) => void)[] = [
        (manifest) => (manifest['runtime'] = 'process'),
        (manifest) => (manifest['spec'] = { ...(manifest['spec'] as object), runtime: 'process' }),
        (manifest) => (manifest['spec'] = { ...(manifest['spec'] as object), template: 'theirs' }),
        (manifest) => (manifest['sandbox'] = theirs.id),
        (manifest) =>
          (manifest.memory = { compatibility: 'x', files: [{ name: '../../../etc/passwd', bytes: 1 }] }),
        (manifest) => (manifest.memory = { compatibility: 'x', files: [{ name: '..', bytes: 0 }] }),
        (manifest) =>
          (manifest.memory = {
            compatibility: 'x',
            files: [{ name: 'big', bytes: Number.MAX_SAFE_INTEGER }],
          }),
      ];
      for (const lie of lies) {
        const archive = await opened(own);
        delete archive.signature;
        delete archive.manifest.memory;
        archive.memory.clear();
        lie(archive.manifest);
        const { memory } = archive.manifest as Manifest;
        for (const { name } of memory?.files ?? []) archive.memory.set(name, randomBytes(16));
        const { status, json } = await take(alice, await closed(archive));
        expect([201, 400, 404]).toContain(status);
        if (status !== 201) continue;
        const made = await alice.call('POST', '/v1/sandboxes', { body: { snapshot: json.id } });
        if (made.status === 201) {
          expect(made.json.runtime).not.toBe('process');
          await alice.call('DELETE', `/v1/sandboxes/${made.json.id}`);
        }
        await alice.call('DELETE', `/v1/snapshots/${json.id}`);
      }
      expect(await seen()).toBe(before);
      await target.requireAlive();
    },
  );

  it('imports and exports many at once, and others go on', { timeout: 600_000 }, async (context) => {
    requireAbility(context, target, 'snapshots');
    const { alice, bob } = target;
    const theirs = await bob.create();
    const { id: linked } = await alice.create();
    await alice.exec(linked, ['python3', '-c', LINKS, String(7000 * SCALE)], { timeoutMs: 300_000 });
    const { json: snapshot } = await alice.call('POST', `/v1/sandboxes/${linked}/snapshots`, { body: {} });
    const archive = await exported(target, alice, snapshot.id);
    let most = 0;
    const watching = setInterval(() => (most = Math.max(most, bytesOfTree(target.pid))), 100);
    try {
      const work = Array.from({ length: 20 }, () => [
        take(alice, archive),
        alice.call('GET', `/v1/snapshots/${snapshot.id}/archive`),
      ]).flat();
      const all = Promise.all(work);
      await sleep(200);
      const made = await bob.create();
      expect((await bob.exec(made.id, ['true'])).exitCode).toBe(0);
      for (const { status } of await all) expect([200, 201, 429]).toContain(status);
    } finally {
      clearInterval(watching);
    }
    if (process.env['CAY_ATTACK_FIGURES'] !== undefined)
      console.info(
        `server and helpers: ${Math.round(most / MiB)} MiB for archives of ${archive.length} bytes`,
      );
    await target.requireAlive();
    expect(most).toBeLessThan(2048 * MiB);
    expect((await bob.exec(theirs.id, ['echo', 'here'])).stdout).toBe('here\n');
  });

  it('is refused in clear words where there are no archives', async ({ skip }) => {
    skip(target.lacks('snapshots') === undefined, 'there are archives here');
    const { alice } = target;
    for (const body of [new Uint8Array(MiB), new Uint8Array(0), randomBytes(64)]) {
      const { status, json } = await take(alice, body);
      expect([status, json.error.code]).toEqual([501, 'unsupported']);
    }
    await target.requireAlive();
  });
});

/** Names of one file that are as long as they can be. */
const LINKS = `
import os, sys
open('/home/user/one', 'w').close()
for number in range(int(sys.argv[1])):
    directory = '/home/user/' + '/'.join(['d' * 240] * 3) + str(number // 5000)
    if number % 5000 == 0:
        os.makedirs(directory)
    os.link('/home/user/one', f'{directory}/{number}' + 'n' * 200)
`;

/** Resident memory of a process and of all that it started. */
function bytesOfTree(root: number): number {
  const rows = execFileSync('ps', ['-eo', 'pid=,ppid=,rss='], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number) as [number, number, number]);
  const own = new Set([root]);
  for (let before = 0; before < own.size;) {
    before = own.size;
    for (const [pid, parent] of rows) if (own.has(parent)) own.add(pid);
  }
  return rows.reduce((sum, [pid, , kilobytes]) => (own.has(pid) ? sum + kilobytes * 1024 : sum), 0);
}
