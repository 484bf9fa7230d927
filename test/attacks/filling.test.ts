/** Code in a sandbox fills memory and the disk in every way there is: it gets its limits, and ends alone. */
import { readFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { insideEachPlatform, requireAbility } from './support/platforms.ts';
import { SCALE } from './support/scale.ts';
import type { Target } from './support/target.ts';

const MiB = 1024 ** 2;
const FILL = readFileSync(join(import.meta.dirname, 'support/fill.py'), 'utf8');
const MEMORY_WAYS = ['heap', 'shm', 'memfd', 'page_tables', 'dentries', 'pipes'];
const MEMORY_LIMIT = 128 * MiB;
const MEMORY_SECONDS = 4;
const DISK_WAYS = ['fallocate', 'holes', 'hard_links', 'deleted', 'attributes', 'empty_files', 'reflinks'];
const DISK_LIMIT = 128 * MiB;
const DISK_SECONDS = 2;
/** What the bookkeeping of a filesystem takes that no quota counts. */
const DISK_SLACK = 192 * MiB;

insideEachPlatform('code that fills what it finds', (platform) => {
  let target: Target;
  let theirs: string;
  beforeAll(async () => {
    target = await platform.start({ dockerDiskBytes: 6 * 1024 * MiB });
    ({ id: theirs } = await target.bob.create());
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  /** What it printed, or nothing if it was ended. */
  async function fill(
    sandbox: string,
    way: string,
    seconds: number,
    options: { number?: number; user?: string } = {},
  ): Promise<{ bytes: number; count: number; error?: string } | undefined> {
    const { number, user = 'user' } = options;
    const argv = ['python3', '-c', FILL, way, String(seconds), ...(number ? [String(number)] : [])];
    const { json } = await target.alice.call('POST', `/v1/sandboxes/${sandbox}/exec`, {
      body: { argv, user, timeoutMs: (seconds + 15) * 1000 },
      signal: AbortSignal.timeout((seconds + 60) * 1000),
    });
    return json?.exitCode === 0 ? JSON.parse(json.stdout) : undefined;
  }

  async function requireOthersWell(): Promise<void> {
    await target.requireAlive();
    expect((await target.bob.exec(theirs, ['sh', '-c', 'echo here > /tmp/here; cat /tmp/here'])).stdout).toBe(
      'here\n',
    );
    expect((await target.bob.call('GET', `/v1/sandboxes/${theirs}`)).json.state).toBe('active');
  }

  describe('the disk', () => {
    /** Where the trees of all sandboxes are. */
    const usedBytes = async () => {
      const path =
        platform.name === 'docker'
          ? join(target.docker!.directory, 'data')
          : join(target.dataDir, 'engine/storage/pool');
      const { blocks, bfree, bsize } = await statfs(path);
      return (blocks - bfree) * bsize;
    };

    it.for(DISK_WAYS)('by %s: no more than its limit', { timeout: 120_000 }, async (way, context) => {
      const lacking = target.lacks('diskLimit');
      if (lacking !== undefined) return context.skip(lacking);
      const { id } = await target.alice.create({ limits: { diskBytes: DISK_LIMIT } });
      const before = await usedBytes();
      const got = await fill(id, way, DISK_SECONDS, { number: 20_000 * SCALE });
      expect(got, way).toBeDefined();
      const grown = (await usedBytes()) - before;
      expect(grown, JSON.stringify(got)).toBeLessThan(DISK_LIMIT + DISK_SLACK);
      await requireOthersWell();
    });
  });

  it(
    'memory: no more than its limit, and only its own sandbox ends',
    { timeout: 120_000 },
    async (context) => {
      requireAbility(context, target, 'memoryLimit');
      const running = await target.bob.call('POST', `/v1/sandboxes/${theirs}/commands`, {
        body: { argv: ['sleep', '600'] },
      });
      expect(running.status).toBe(201);
      const before = availableBytes();
      let least = before;
      const watching = setInterval(() => (least = Math.min(least, availableBytes())), 50);
      try {
        await Promise.all(
          MEMORY_WAYS.map(async (way) => {
            const { id } = await target.alice.create({ limits: { memoryBytes: MEMORY_LIMIT } });
            const got = await fill(id, way, MEMORY_SECONDS, { user: 'root' });
            expect(got?.bytes ?? 0, way).toBeLessThanOrEqual(MEMORY_LIMIT * 1.5);
            await target.alice.call('DELETE', `/v1/sandboxes/${id}`);
          }),
        );
      } finally {
        clearInterval(watching);
      }
      // Others use the machine as well. Without limits these would have taken several times as much.
      expect(before - least).toBeLessThan(MEMORY_WAYS.length * MEMORY_LIMIT + 1536 * MiB);
      await requireOthersWell();
      const path = `/v1/sandboxes/${theirs}/commands/${running.json.command.id}`;
      const { status, json } = await target.bob.call('GET', path);
      expect([status, json.end]).toEqual([200, undefined]);
    },
  );
});

function availableBytes(): number {
  return Number(/MemAvailable:\s+(\d+) kB/.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) * 1024;
}
