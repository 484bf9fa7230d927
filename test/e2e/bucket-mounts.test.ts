/** Mounted buckets as programs in sandboxes see them, and what is left when servers and pumps are killed. */
import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  bucketAt as objectsAt,
  mountsOf,
  ok,
  pumpsOf,
  sh,
  withBucket as openWithBucket,
  textOf,
} from '../support/mounted-bucket.ts';
import { startS3Server } from '../support/s3-server.ts';
import { whyLater } from '../support/tier.ts';

const server = await startS3Server();
if ('why' in server) {
  it.skip(`mounted buckets: no S3 server: ${server.why}`, () => {});
} else if (process.getuid?.() !== 0) {
  it.skip('mounted buckets: the local backend needs root', () => {});
} else {
  const { secretKey } = server.credentials;
  afterAll(() => server.stop());

  const bucketAt = (prefix: string) => objectsAt(server, prefix);
  const withBucket = (prefix: string, runtime: string) =>
    openWithBucket(server, { prefix, env: { CAY_RUNTIME: runtime } });

  describe.each(['runc', 'runsc'])('a mounted bucket on %s', (runtime) => {
    const later = runtime === 'runsc' ? whyLater() : undefined;
    if (later !== undefined) {
      it.skip(later, () => {});
      return;
    }
    it('is for its sandbox alone, and for no account of the machine', async () => {
      const prefix = `alone-${runtime}`;
      await bucketAt(prefix).put('mine', one('secret\n'));
      await using cay = await withBucket(prefix, runtime);
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      expect(await sh(cay, 'cat /mnt/data/mine')).toBe('secret\n');
      const places = mountsOf(cay).map((line) => line.split(' ')[4]!);
      expect(places.length).toBeGreaterThan(0);
      const NOBODY = 65_534;
      for (const place of places) {
        const tried = spawnSync('cat', [join(place, 'mine')], { uid: NOBODY, gid: NOBODY, encoding: 'utf8' });
        expect([tried.stdout, tried.stderr]).toEqual(['', expect.stringContaining('Permission denied')]);
        const wrote = spawnSync('touch', [join(place, 'theirs')], { uid: NOBODY, gid: NOBODY });
        expect(wrote.status).not.toBe(0);
      }
      expect(await bucketAt(prefix).head('theirs')).toBeUndefined();
    });

    it('is a directory for programs, and the keys are not inside', async () => {
      const data = bucketAt(`programs-${runtime}`);
      await data.put('in/numbers.txt', one('1\n2\n3\n'));
      await using cay = await withBucket(`programs-${runtime}`, runtime);
      await ok(
        cay,
        'create',
        '--name',
        'box',
        '--bucket',
        'data:/mnt/data,mount',
        '--bucket',
        'data:in:/mnt/in,mount,ro',
      );
      expect(await sh(cay, 'cat /mnt/in/numbers.txt; ls /mnt/data; env; cat /proc/mounts')).not.toContain(
        secretKey,
      );
      expect(
        await sh(cay, 'cd /mnt/data && cp in/numbers.txt copy && sed -i s/2/two/ copy && cat copy'),
      ).toBe('1\ntwo\n3\n');
      expect(Buffer.concat(await Array.fromAsync(data.get('copy'))).toString()).toBe('1\ntwo\n3\n');
      const written =
        'head -c 20000000 /dev/urandom > /tmp/r && cp /tmp/r big && cmp big /tmp/r && sha256sum < big';
      const digest = await sh(cay, `cd /mnt/data && ${written}`);
      const content = Buffer.concat(await Array.fromAsync(data.get('big')));
      expect(digest.split(' ')[0]).toBe(
        (await import('node:crypto')).createHash('sha256').update(content).digest('hex'),
      );
      // Several readers at once, and one in the middle.
      const parallel =
        'for i in 1 2 3 4; do sha256sum < big & done | sort -u; wait; tail -c 100 big | cmp - <(tail -c 100 /tmp/r)';
      await ok(cay, 'exec', 'box', '--', 'bash', '-c', `cd /mnt/data && ${parallel}`);
      const trees =
        'mkdir -p t/a && echo x > t/a/x && tar -cf - t | (mkdir u && tar -xf - -C u) && mv u/t v && find . | sort && rm -r t u v big';
      expect(await sh(cay, `cd /mnt/data && ${trees}`)).toContain('./v/a/x');
      const sqlite =
        'import sqlite3; c = sqlite3.connect("t.db"); c.execute("create table t (a)"); c.execute("insert into t values (7)"); c.commit(); print(c.execute("select a from t").fetchall())';
      expect(await sh(cay, `cd /mnt/data && python3 -c '${sqlite}'`)).toBe('[(7,)]\n');
      const git =
        'git init -q r && cd r && echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -qm one && cd .. && git clone -q r s && git -C s log --format=%s';
      expect(await sh(cay, `cd /mnt/data && ${git}`)).toBe('one\n');
      // What a bucket cannot do is an error.
      // Versions of gVisor differ in whether they keep modes and pipes of their own there.
      const modes = runtime === 'runc' ? ['chmod 700 copy', 'mkfifo f'] : [];
      for (const refused of ['ln -s a b', 'echo x > /mnt/in/new', 'rmdir r', ...modes])
        expect((await cay.run('exec', 'box', '--', 'sh', '-c', `cd /mnt/data && ${refused}`)).code).not.toBe(
          0,
        );
      expect((await cay.run('bucket', 'rm', 'data')).stderr).toContain('mount it');
      await ok(cay, 'rm', 'box');
      expect(mountsOf(cay)).toEqual([]);
      await expect.poll(() => pumpsOf(cay), { timeout: 10_000 }).toEqual([]);
      data.close();
    }, 300_000);

    it('goes on when the server was killed, and what was not closed is written', async () => {
      const data = bucketAt(`killed-${runtime}`);
      await using cay = await withBucket(`killed-${runtime}`, runtime);
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      await sh(cay, 'echo before > /mnt/data/before');
      const slow =
        'exec 3> /mnt/data/open; echo first >&3; while [ ! -e /tmp/go ]; do sleep 0.2; done; echo second >&3; exec 3>&-; cat /mnt/data/before > /tmp/seen';
      await ok(cay, 'exec', '-d', 'box', '--', 'sh', '-c', slow);
      await expect.poll(() => sh(cay, 'stat -c %s /mnt/data/open'), { timeout: 20_000 }).toBe('6\n');
      const { pid } = await cay.json<{ pid: number }>('status');
      process.kill(pid, 'SIGKILL');
      await ok(cay, 'up', '--detach');
      await sh(cay, 'touch /tmp/go');
      await expect
        .poll(() => sh(cay, 'cat /tmp/seen 2>/dev/null || true'), { timeout: 30_000 })
        .toBe('before\n');
      // A server that was started meanwhile does not know what the program has open, and may write it later.
      await expect.poll(() => textOf(data, 'open'), { timeout: 40_000 }).toBe('first\nsecond\n');

      // The pump is killed: calls fail, nothing hangs, and a start mounts it again.
      await sh(
        cay,
        'exec 3>&-; (exec 3> /mnt/data/left; echo left >&3; sleep 100) > /dev/null 2>&1 & sleep 1',
      );
      for (const pump of pumpsOf(cay)) process.kill(pump, 'SIGKILL');
      expect((await cay.run('exec', 'box', '--', 'cat', '/mnt/data/before')).code).not.toBe(0);
      await ok(cay, 'stop', 'box');
      expect(Buffer.concat(await Array.fromAsync(data.get('left'))).toString()).toBe('left\n');
      await ok(cay, 'start', 'box');
      expect(await sh(cay, 'cat /mnt/data/left')).toBe('left\n');
      await ok(cay, 'fork', 'box');
      await ok(cay, 'rm', '--all', '--yes');
      expect(mountsOf(cay)).toEqual([]);
      data.close();
    }, 300_000);
  });

  it('names what a mount needs', async () => {
    execFileSync('test', ['-c', '/dev/fuse']);
    await using cay = await withBucket('refused', 'runc');
    const missing = await cay.run('create', '--bucket', 'other:/mnt/data,mount');
    expect(missing.stderr).toContain('Bucket "other" does not exist');
    const both = await cay.run('create', '--bucket', 'data:/mnt/data,mount,down');
    expect(both.stderr).toContain('no bucket for --bucket');
  }, 120_000);
}

async function* one(text: string): AsyncGenerator<Buffer, void> {
  yield Buffer.from(text);
}
