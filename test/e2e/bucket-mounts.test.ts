/** Mounted buckets as programs in sandboxes see them, and what is left when servers and pumps are killed. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { bucketAddress } from '../../server/src/s3/bucket-address.ts';
import { openBucket } from '../../server/src/s3/open-bucket.ts';
import { openCay, type Cay } from '../support/cay.ts';
import { startS3Server } from '../support/s3-server.ts';
import { whyLater } from '../support/tier.ts';

const server = await startS3Server();
if ('why' in server) {
  it.skip(`mounted buckets: no S3 server: ${server.why}`, () => {});
} else if (process.getuid?.() !== 0) {
  it.skip('mounted buckets: the local backend needs root', () => {});
} else {
  const { endpoint, bucket: name, credentials } = server;
  const { accessKeyId, secretKey } = credentials;
  afterAll(() => server.stop());

  const bucketAt = (prefix: string) =>
    openBucket({
      address: bucketAddress({ bucket: name, prefix, endpoint }),
      credentials: () => credentials,
      reach: 'private',
    });

  async function ok(cay: Cay, ...args: Parameters<Cay['run']>): Promise<string> {
    const { code, stdout, stderr } = await cay.run(...args);
    expect(code, `${args.filter((part) => typeof part === 'string').join(' ')}: ${stderr}`).toBe(0);
    return stdout;
  }

  const sh = (cay: Cay, script: string) => ok(cay, 'exec', 'box', '--', 'sh', '-c', script);

  async function withBucket(prefix: string, runtime: string): Promise<Cay> {
    const cay = await openCay({ CAY_ALLOW_BUCKET_ENDPOINT: new URL(endpoint).host, CAY_RUNTIME: runtime });
    await ok(cay, 'up', '--detach');
    await ok(cay, 'secret', 'set', 's3-key', { input: secretKey });
    const address = [`s3://${name}/${prefix}`, '--endpoint', endpoint];
    await ok(cay, 'bucket', 'add', 'data', ...address, '--access-key-id', accessKeyId, '--secret', 's3-key');
    return cay;
  }

  /** The pumps of this data directory. */
  const pumpsOf = (cay: Cay) =>
    readdirSync('/proc').filter((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
        return (
          words[1] === 'bucket-mount' && words[3]!.startsWith(cay.dataDir) && readlinkSync(`/proc/${pid}/exe`)
        );
      } catch {
        return false;
      }
    });
  const mountsOf = (cay: Cay) =>
    readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .filter((line) => line.includes('fuse.cay-bucket') && line.includes(cay.dataDir));

  describe.each(['runc', 'runsc'])('a mounted bucket on %s', (runtime) => {
    const later = runtime === 'runsc' ? whyLater() : undefined;
    if (later !== undefined) {
      it.skip(later, () => {});
      return;
    }
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
      for (const refused of ['ln -s a b', 'chmod 700 copy', 'mkfifo f', 'echo x > /mnt/in/new', 'rmdir r'])
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
      expect(Buffer.concat(await Array.fromAsync(data.get('open'))).toString()).toBe('first\nsecond\n');

      // The pump is killed: calls fail, nothing hangs, and a start mounts it again.
      await sh(
        cay,
        'exec 3>&-; (exec 3> /mnt/data/left; echo left >&3; sleep 100) > /dev/null 2>&1 & sleep 1',
      );
      for (const pump of pumpsOf(cay)) process.kill(Number(pump), 'SIGKILL');
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
