/**
 * What calls of programs do in mounts, and what a fork, a rollback, hibernation and other backends make of a
 * mount.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { bucketAt, mountsOf, ok, pumpsOf, sh, textOf, withBucket } from '../support/mounted-bucket.ts';
import { startS3Server } from '../support/s3-server.ts';
import { whyLater } from '../support/tier.ts';

const SCRIPT = readFileSync(join(import.meta.dirname, 'bucket-mounts-semantics.py'), 'utf8');
const server = await startS3Server();
if ('why' in server) {
  it.skip(`mounted buckets: no S3 server: ${server.why}`, () => {});
} else if (process.getuid?.() !== 0) {
  it.skip('mounted buckets: the local backend needs root', () => {});
} else {
  afterAll(() => server.stop());
  describe.each(['runc', 'runsc'])('a mount on %s', (runtime) => {
    const later = runtime === 'runc' ? whyLater() : undefined;
    if (later !== undefined) {
      it.skip(later, () => {});
      return;
    }
    const env = { CAY_RUNTIME: runtime };

    it('does for each call what the guide says', async () => {
      const prefix = `calls-${runtime}`;
      const data = bucketAt(server, prefix);
      const keys = Array.from({ length: 1_500 }, (_, index) => `many/${index}`);
      await inTurns(keys, (key) => data.put(key, one('x')));
      await using cay = await withBucket(server, { prefix, env });
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      await ok(cay, 'exec', 'box', '--', 'python3', '-c', 'pass');
      const printed = await ok(cay, 'exec', '-i', 'box', '--', 'python3', '-', { input: SCRIPT });
      // Versions of gVisor differ in whether they keep modes and pipes of their own there.
      const own = runtime === 'runsc' ? ['chmod: it succeeded', 'mkfifo: it succeeded'] : [];
      const wrong = printed.trim().split('\n');
      expect(wrong.filter((line) => line !== 'as the guide says' && !own.includes(line))).toEqual([]);
      // What others see of it.
      expect(await textOf(data, 'a')).toBe('b');
      expect(await textOf(data, 'renamed')).toBe('one two');
      // gVisor may keep the file open that the program has closed.
      const withinMs = runtime === 'runsc' ? 30_000 : 0;
      await expect.poll(() => textOf(data, 'made/last'), { timeout: withinMs }).toBe('last');
      await expect
        .poll(async () => (await textOf(data, 'mapped'))?.slice(5000, 5004), { timeout: 30_000 })
        .toBe('mmap');
      data.close();
    }, 200_000);

    it('is left alone by rollbacks, and is there in forks and after hibernation', async () => {
      const prefix = `travel-${runtime}`;
      const data = bucketAt(server, prefix);
      await using cay = await withBucket(server, { prefix, env });
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      await sh(cay, 'echo one > /mnt/data/one; echo one > /home/user/own');
      await ok(cay, 'snapshot', 'take', 'box', '--name', 'first');
      const hold = 'exec 3> /mnt/data/held; echo held >&3; while :; do sleep 1; done';
      await ok(cay, 'exec', '-d', 'box', '--', 'sh', '-c', hold);
      await sh(cay, 'echo two > /mnt/data/two; echo two > /home/user/own');
      await expect.poll(() => sh(cay, 'ls /mnt/data'), { timeout: 20_000 }).toContain('held');

      const [fork] = (await ok(cay, 'fork', 'box')).trim().split(/\s+/);
      expect(await sh(cay, 'cat /mnt/data/one && echo fork > /mnt/data/fork', fork)).toBe('one\n');
      // Others see it when they look again.
      await expect.poll(() => sh(cay, 'ls /mnt/data'), { timeout: 40_000 }).toContain('fork');
      await ok(cay, 'rm', fork!);

      await ok(cay, 'rollback', 'box', 'first');
      expect(await sh(cay, 'cat /home/user/own /mnt/data/two')).toBe('one\ntwo\n');
      await expect.poll(() => textOf(data, 'held'), { timeout: 40_000 }).toBe('held\n');

      if (runtime === 'runsc') {
        await ok(cay, 'exec', '-d', 'box', '--', 'sh', '-c', 'cd /mnt/data; while :; do sleep 1; done');
        await ok(cay, 'pause', '--as', 'hibernated', 'box');
        expect(await textOf(data, 'one')).toBe('one\n');
        expect(mountsOf(cay)).toEqual([]);
        expect(await sh(cay, 'cat /mnt/data/one && echo woke > /mnt/data/woke')).toBe('one\n');
        await expect.poll(() => textOf(data, 'woke'), { timeout: 40_000 }).toBe('woke\n');
      }
      await ok(cay, 'rm', '--all', '--yes');
      expect(mountsOf(cay)).toEqual([]);
      await expect.poll(() => pumpsOf(cay), { timeout: 10_000 }).toEqual([]);
      data.close();
    }, 250_000);
  });

  it('is refused by a backend that mounts none, when the sandbox is created', async () => {
    await using cay = await withBucket(server, { prefix: 'none', env: { CAY_BACKEND: 'memory' } });
    const refused = await cay.run('create', '--bucket', 'data:/mnt/data,mount');
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('Nothing is mounted in memory: use copies of buckets');
  }, 60_000);
}

async function inTurns<T>(all: readonly T[], work: (one: T) => Promise<unknown>): Promise<void> {
  const queue = all.values();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      for (const each of queue) await work(each);
    }),
  );
}

async function* one(text: string): AsyncGenerator<Buffer, void> {
  yield Buffer.from(text);
}
