import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import {
  startHostileRegistry,
  type HostileRegistry,
} from '../../server/src/host/images/testing/hostile-registry.ts';
import { imageOf, layerOf, sha256 } from '../../server/src/host/images/testing/test-image.ts';
import { onEachPlatform } from './support/platforms.ts';
import type { Reply, Target, Tenant } from './support/target.ts';

const MiB = 1024 ** 2;
const STORE = 32 * MiB;
const QUOTA = 20 * MiB;

/** An image of about this size that no other has a part of. */
function bulky(seed: string, bytes: number) {
  const busybox = readFileSync('/bin/busybox');
  const layer = layerOf([
    { name: 'bin', type: 'directory' },
    { name: 'bin/sh', mode: 0o755, content: busybox },
    { name: 'bin/true', type: 'symlink', target: 'sh' },
    { name: 'data', content: Buffer.alloc(Math.max(1, bytes - busybox.length), seed) },
  ]);
  return imageOf([layer]);
}

onEachPlatform('images of two tenants', (platform) => {
  if (platform.name === 'docker') {
    it.skip('Docker keeps its images itself, for all together', () => {});
    return;
  }
  let target: Target;
  let registry: HostileRegistry;
  const name = (image: string) => `${registry.address}/${image}`;

  beforeAll(async () => {
    registry = await startHostileRegistry();
    target = await platform.start({
      flags: [
        '--insecure-registry',
        registry.address,
        '--image-store',
        String(STORE),
        '--default-quota',
        `image-bytes=${QUOTA}`,
      ],
    });
  }, 180_000);
  afterEach(() => {
    registry.intercept = () => false;
  });
  afterAll(async () => {
    await target?.[Symbol.asyncDispose]();
    await registry?.stop();
  }, 60_000);

  const pull = (tenant: Tenant, image: string, signal?: AbortSignal): Promise<Reply> =>
    tenant.call('POST', '/v1/images/pull', { body: { image: name(image) }, ...(signal && { signal }) });
  const listed = async () =>
    ((await target.admin.call('GET', '/v1/images')).json.images as { names: string[] }[]).flatMap(
      ({ names }) => names,
    );
  const taken = async (tenant: Tenant) =>
    (await tenant.call('GET', `/v1/projects/${tenant.project}/usage`)).json.imageBytes.used as number;

  it('one that pulls and pulls pushes out its own images alone', { timeout: 120_000 }, async () => {
    registry.serve('bob/tool', '1', bulky('b', 8 * MiB));
    expect((await pull(target.bob, 'bob/tool:1')).text).toContain('"images"');
    for (let index = 0; index < 8; index++) {
      registry.serve(`alice/${index}`, '1', bulky(String(index), 6 * MiB));
      expect((await pull(target.alice, `alice/${index}:1`)).text).toContain('"images"');
      expect(await taken(target.alice)).toBeLessThanOrEqual(QUOTA);
    }
    const names = await listed();
    expect(names).toContain(name('bob/tool:1'));
    expect(names).toContain(name('alice/7:1'));
    expect(names).not.toContain(name('alice/0:1'));
    expect(await taken(target.bob)).toBeGreaterThan(7 * MiB);
  });

  it('one that uses all of its images is refused more', { timeout: 120_000 }, async () => {
    registry.serve('alice/used', '1', bulky('u', 14 * MiB));
    const { id } = await target.alice.create({ template: name('alice/used:1') });
    registry.serve('alice/more', '1', bulky('m', 10 * MiB));
    const refused = await target.alice.call('POST', '/v1/sandboxes', {
      body: { template: name('alice/more:1') },
    });
    expect(refused).toMatchObject({
      status: 429,
      json: { error: { code: 'resource_exhausted', details: { quota: 'imageBytes', limit: QUOTA } } },
    });
    await target.bob.create({ template: name('bob/tool:1') });
    await target.alice.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('a slow registry holds up nobody else', { timeout: 120_000 }, async () => {
    const image = bulky('s', 2 * MiB);
    const [blob] = [...image.blobs].find(([, bytes]) => bytes.length > 1000)!;
    registry.serve('good/image', '1', image);
    for (let index = 0; index < 40; index++) registry.serve(`slow/${index}`, '1', image);
    // The registry of the attacker gives a layer that others have too, byte by byte.
    registry.intercept = (request, response) => {
      if (!request.url!.startsWith('/v2/slow/') || !request.url!.includes(blob)) return false;
      response.writeHead(200);
      const timer = setInterval(() => response.write('x'), 500);
      response.on('close', () => clearInterval(timer));
      return true;
    };
    const leaving = new AbortController();
    const slow = Array.from({ length: 40 }, (_, index) =>
      pull(target.alice, `slow/${index}:1`, leaving.signal).catch(() => undefined),
    );
    await sleep(1500);
    const from = performance.now();
    expect((await pull(target.bob, 'good/image:1')).text).toContain('"images"');
    expect(performance.now() - from).toBeLessThan(20_000);
    leaving.abort();
    const ended = await Promise.all(slow);
    // Those beyond the bound were refused at once.
    expect(ended.some((reply) => reply?.text.includes('pulls under way'))).toBe(true);
    await target.requireAlive();
  });

  it(
    'one with links in place of what is mounted leads nowhere on the host',
    { timeout: 300_000 },
    async () => {
      const canary = mkdtempSync(join(tmpdir(), 'cay-mount-canary-'));
      const before = { host: readdirSync('/').toSorted(), changed: statSync(canary).mtimeMs };
      const base = layerOf([
        { name: 'bin', type: 'directory' },
        { name: 'bin/sh', mode: 0o755, content: readFileSync('/bin/busybox') },
        { name: 'bin/true', type: 'symlink', target: 'sh' },
      ]);
      const { id: neighbour } = await target.bob.create();
      const climb = `${'../'.repeat(40)}${canary.slice(1)}`;
      const links = ['proc', 'sys', 'dev', 'run', 'tmp', 'usr', 'home', 'etc'].map((at, index) => [
        { name: at, type: 'symlink' as const, target: index % 2 === 0 ? canary : climb },
      ]);
      const below = ['run/cay', 'run/cay-guest', 'dev/pts', 'dev/shm', 'sys/kernel', 'etc/hosts'].map(
        (at) => [
          { name: at.split('/')[0]!, type: 'directory' as const },
          { name: at, type: 'symlink' as const, target: climb },
        ],
      );
      for (const [index, entries] of [...links, ...below].entries()) {
        registry.serve(`alice/links${index}`, '1', imageOf([base, layerOf(entries)]));
        const made = await target.alice.call('POST', '/v1/sandboxes', {
          body: { template: name(`alice/links${index}:1`) },
        });
        // It works inside of its own tree, or is refused in clear words.
        expect([201, 400, 409, 412, 503], `${entries.at(-1)!.name}: ${made.text}`).toContain(made.status);
        if (made.status === 201) {
          await target.alice.call('POST', `/v1/sandboxes/${made.json.id}/exec`, {
            body: {
              argv: ['sh', '-c', 'echo x > /tmp/x; echo x > /run/x; echo x > /dev/x; true'],
              user: 'root',
            },
          });
          await target.alice.call('DELETE', `/v1/sandboxes/${made.json.id}`);
        }
        expect(readdirSync(canary), entries.at(-1)!.name).toEqual([]);
      }
      expect({ host: readdirSync('/').toSorted(), changed: statSync(canary).mtimeMs }).toEqual(before);
      expect((await target.bob.exec(neighbour, ['true'])).exitCode).toBe(0);
      rmSync(canary, { recursive: true });
    },
  );

  it('what one registry has sent spoils nothing of another', { timeout: 120_000 }, async () => {
    const image = bulky('p', 2 * MiB);
    const [blob, bytes] = [...image.blobs].find(([digest]) => digest !== sha256(image.manifest))!;
    registry.serve('evil/image', '1', image);
    registry.serve('fine/image', '1', image);
    registry.intercept = (request, response) => {
      if (!request.url!.startsWith('/v2/evil/') || !request.url!.includes('/blobs/')) return false;
      if (request.url!.includes(blob)) return false;
      // A beginning that is wrong, and then nothing.
      response.writeHead(200).write(Buffer.alloc(Math.min(500, bytes.length), 0xff));
      return true;
    };
    const leaving = new AbortController();
    const evil = pull(target.alice, 'evil/image:1', leaving.signal).catch(() => undefined);
    await sleep(500);
    leaving.abort();
    await evil;
    expect((await pull(target.bob, 'fine/image:1')).text).toContain('"images"');
  });
});
