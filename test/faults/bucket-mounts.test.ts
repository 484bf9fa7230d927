/**
 * Mounted buckets whose S3 server fails, whose server is killed, and whose sandboxes end with unwritten
 * files.
 */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startFaultyProxy, type Fault, type FaultyProxy } from '../support/faulty-proxy.ts';
import { bucketAt, mountsOf, ok, pumpsOf, sh, textOf, withBucket } from '../support/mounted-bucket.ts';
import { startS3Server } from '../support/s3-server.ts';
import { CURRENT_RUNSC, findRunsc, runscDate, versionOf } from '../../server/src/host/runtimes/find-runsc.ts';

const REFUSED: Fault = {
  do: 'answer',
  status: 403,
  body: '<Error><Code>AccessDenied</Code><Message>no</Message></Error>',
};
const BROKEN: Fault = { do: 'answer', status: 500 };
const BUSY: Fault = {
  do: 'answer',
  status: 503,
  body: '<Error><Code>SlowDown</Code></Error>',
  headers: { 'retry-after': '1' },
};

/**
 * What a program is told. gVisor closes the file of the mount a moment later, so that nobody has the error,
 * and that of Debian drops the error of `fsync` as well.
 */
const TOLD = {
  runc: [/^synced fsync Permission denied$/m, /^closed close Permission denied$/m],
  runsc: [
    (runscDate(versionOf(findRunsc())) ?? 0) < CURRENT_RUNSC
      ? /^synced fsync (?:done|Permission denied)$/m
      : /^synced fsync Permission denied$/m,
    /^closed close (?:done|Permission denied)$/m,
  ],
} as const;

const server = await startS3Server();
if ('why' in server) {
  it.skip(`faults of mounted buckets: no S3 server: ${server.why}`, () => {});
} else if (process.getuid?.() !== 0) {
  it.skip('faults of mounted buckets: the local backend needs root', () => {});
} else {
  afterAll(() => server.stop());
  let proxy: FaultyProxy;
  beforeEach(async () => void (proxy = await startFaultyProxy(server.endpoint)));
  afterEach(() => proxy.stop());

  const open = (prefix: string, env: Record<string, string> = {}) =>
    withBucket(server, { prefix, endpoint: proxy.endpoint, env: { CAY_RUNTIME: 'runc', ...env } });
  const writes = (fault: Fault, only = '') => {
    proxy.fault = ({ method, url }) =>
      (method === 'PUT' || method === 'POST') && url.includes(only) && !url.includes('delete')
        ? fault
        : undefined;
  };
  const heal = () => void (proxy.fault = () => undefined);

  describe('a mounted bucket whose S3 server fails', () => {
    it('goes on through faults that end, and damages nothing', async () => {
      await using cay = await open('faults');
      const data = bucketAt(server, 'faults');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      await sh(cay, 'head -c 20000000 /dev/urandom > /tmp/r; head -c 300000 /dev/urandom > /tmp/s');
      const faults: (Fault | undefined)[] = [
        BROKEN,
        BUSY,
        { do: 'delay', ms: 400 },
        { do: 'cut', afterBytes: 1_000 },
        // moto does not look at digests.
        ...(server.program === 'versitygw' ? [{ do: 'damage request' } as const] : []),
        { do: 'lose', status: 500 },
      ];
      for (const fault of faults) {
        // Every third request, so that each call succeeds at last.
        proxy.fault = (_, number) => (number % 3 === 0 ? fault : undefined);
        await sh(cay, 'cd /mnt/data && cp /tmp/r r && cp /tmp/s s && echo more >> s && cat s > /tmp/back');
        await sh(cay, '(cat /tmp/s; echo more) | cmp - /tmp/back && cmp /tmp/r /mnt/data/r');
        await sh(
          cay,
          'cd /mnt/data && mv s t && (cat /tmp/s; echo more) | cmp - t && rm t r && test -z "$(ls)"',
        );
      }
      heal();
      expect(await Array.fromAsync(data.list())).toEqual([]);
      data.close();
    }, 280_000);

    it('never gives damaged bytes for those of a whole object', async () => {
      await using cay = await open('damaged');
      const data = bucketAt(server, 'damaged');
      await data.put('small', one('x'.repeat(5_000)));
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount,ro');
      proxy.fault = ({ method, url }) =>
        method === 'GET' && url.includes('small') ? { do: 'damage' } : undefined;
      const { code, stdout } = await cay.run('exec', 'box', '--', 'cat', '/mnt/data/small');
      expect({ code: code === 0, stdout }).toEqual({ code: false, stdout: '' });
      heal();
      expect(await sh(cay, 'cat /mnt/data/small')).toBe('x'.repeat(5_000));
      data.close();
    }, 120_000);

    it.each(['runc', 'runsc'] as const)(
      'tells a program on %s that a file was not written, and the caller in any case',
      async (runtime) => {
        await using cay = await open(`told-${runtime}`, { CAY_RUNTIME: runtime });
        await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
        writes(REFUSED);
        const python = `import os
for name, sync in (("synced", True), ("closed", False)):
    file = os.open("/mnt/data/" + name, os.O_CREAT | os.O_WRONLY)
    os.write(file, b"content")
    for call, work in (("fsync", os.fsync), ("close", os.close)):
        if call == "fsync" and not sync:
            continue
        try:
            work(file)
            print(name, call, "done")
        except OSError as error:
            print(name, call, os.strerror(error.errno))
`;
        const told = await ok(cay, 'exec', '-i', 'box', '--', 'python3', '-', { input: python });
        for (const line of TOLD[runtime]) expect(told).toMatch(line);
        const unwritten = async () =>
          (await cay.json<{ unwrittenFiles: number }[]>('bucket', 'status', 'box'))[0]!.unwrittenFiles;
        await expect.poll(unwritten, { timeout: 10_000 }).toBe(2);
        heal();
        await ok(cay, 'bucket', 'sync', 'box');
        expect(await unwritten()).toBe(0);
        await ok(cay, 'rm', 'box');
      },
      120_000,
    );

    it('tells programs, the sandbox and the caller what is unwritten, and keeps it until it is written', async () => {
      await using cay = await open('unwritten');
      const data = bucketAt(server, 'unwritten');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      writes(REFUSED);
      const closed = await cay.run(
        'exec',
        'box',
        '--',
        'sh',
        '-c',
        'echo kept > /tmp/kept; cp /tmp/kept /mnt/data/kept',
      );
      expect(closed.code).not.toBe(0);
      expect(await sh(cay, 'cat /mnt/data/kept')).toBe('kept\n');
      const [state] = await cay.json<{ unwrittenFiles: number; error: string }[]>('bucket', 'status', 'box');
      expect(state).toMatchObject({ unwrittenFiles: 1, unwrittenBytes: 5, ended: false });
      expect(state!.error).toContain('Cannot write "kept"');
      for (const verb of [['rm'], ['stop'], ['bucket', 'sync']]) {
        const refused = await cay.run(...verb, 'box');
        expect(refused.code, verb.join(' ')).not.toBe(0);
        expect(refused.stderr, verb.join(' ')).toContain('"/mnt/data/kept" is not in bucket "data"');
      }
      const down = await cay.run('down', '--destroy', '--yes');
      expect(down.code).not.toBe(0);
      expect(down.stderr).toContain('"/mnt/data/kept"');
      expect(down.stderr).toContain('--force');
      // Nothing was stopped or removed by all that.
      expect(await sh(cay, 'cat /mnt/data/kept')).toBe('kept\n');
      heal();
      await ok(cay, 'bucket', 'sync', 'box');
      expect(await textOf(data, 'kept')).toBe('kept\n');
      await ok(cay, 'rm', 'box');
      data.close();
    }, 200_000);

    it('is an error of the stop after which something was left, which is written later', async () => {
      await using cay = await open('late');
      const data = bucketAt(server, 'late');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      const late =
        'exec 3> /mnt/data/first; echo first >&3; trap "echo late > /mnt/data/late; exit" TERM; touch /tmp/up; while :; do sleep 0.1; done';
      await ok(cay, 'exec', '-d', 'box', '--', 'sh', '-c', late);
      await expect.poll(() => sh(cay, 'ls /tmp'), { timeout: 20_000 }).toContain('up');
      writes(REFUSED, 'late/late');
      const stopped = await cay.run('stop', 'box');
      expect(stopped.code).not.toBe(0);
      expect(stopped.stderr).toContain('"/mnt/data/late" is not in bucket "data"');
      expect(await textOf(data, 'first')).toBe('first\n');
      const info = await cay.json<{ state: string; message: string }>('inspect', 'box');
      expect(info).toMatchObject({ state: 'stopped' });
      expect(info.message).toContain('is not in bucket');
      const [left] = await cay.json<object[]>('bucket', 'status', 'box');
      expect(left).toMatchObject({ ended: true, unwrittenFiles: 1 });
      // It does not start as long as it could overwrite that.
      expect((await cay.run('start', 'box')).stderr).toContain('before is not in bucket');
      heal();
      await expect.poll(() => textOf(data, 'late'), { timeout: 40_000 }).toBe('late\n');
      await ok(cay, 'start', 'box');
      expect(await sh(cay, 'cat /mnt/data/late')).toBe('late\n');
      data.close();
    }, 200_000);

    it('is given up by force, with an event that says what is lost', async () => {
      await using cay = await open('forced');
      const data = bucketAt(server, 'forced');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      writes(REFUSED);
      await cay.run('exec', 'box', '--', 'sh', '-c', 'echo lost > /mnt/data/lost');
      await ok(cay, 'rm', '--force', 'box');
      const events = await ok(cay, 'events', '--json');
      expect(events).toMatch(/"key":\s*"lost"/);
      expect(events).toMatch(/"lost":\s*true/);
      heal();
      expect(await textOf(data, 'lost')).toBeUndefined();
      expect(mountsOf(cay)).toEqual([]);
      expect(leftIn(cay.dataDir)).toEqual([]);
      data.close();
    }, 120_000);
  });

  describe('a mounted bucket whose server is killed', () => {
    it('has all that was written, also of a sandbox that ended meanwhile', async () => {
      await using cay = await open('killed');
      const data = bucketAt(server, 'killed');
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      writes(BROKEN);
      const held = 'exec 3> /mnt/data/held; head -c 3000000 /dev/zero >&3; sleep 1000';
      await ok(cay, 'exec', '-d', 'box', '--', 'sh', '-c', held);
      await cay.run('exec', 'box', '--', 'sh', '-c', 'echo closed > /mnt/data/closed');
      await expect.poll(() => sh(cay, 'stat -c %s /mnt/data/held'), { timeout: 20_000 }).toBe('3000000\n');
      const { pid } = await cay.json<{ pid: number }>('status');
      process.kill(pid, 'SIGKILL');
      // Pumps, and with them every call of the sandbox, end too.
      for (const pump of pumpsOf(cay)) process.kill(pump, 'SIGKILL');
      await ok(cay, 'up', '--detach');
      expect((await cay.run('down', '--destroy', '--yes')).stderr).toContain('/mnt/data/held');
      heal();
      await ok(cay, 'bucket', 'sync', 'box');
      expect(await textOf(data, 'closed')).toBe('closed\n');
      expect((await data.head('held'))?.sizeBytes).toBe(3_000_000);
      await ok(cay, 'rm', 'box');
      expect(leftIn(cay.dataDir)).toEqual([]);
      data.close();
    }, 200_000);
  });

  describe('the mounts of a project', () => {
    it('are as many as its quota says, and so is what they hold', async () => {
      await using cay = await open('quota', {
        CAY_MAX_QUOTA: 'bucket-mounts=1,bucket-mount-bytes=5m',
      });
      await ok(cay, 'create', '--name', 'box', '--bucket', 'data:/mnt/data,mount');
      const second = await cay.run('create', '--bucket', 'data:/mnt/data,mount');
      expect(second.code).not.toBe(0);
      expect(second.stderr).toContain('quota for mounts of buckets is 1: 1 in use');
      const much = await cay.run(
        'exec',
        'box',
        '--',
        'sh',
        '-c',
        'head -c 9000000 /dev/zero > /mnt/data/much',
      );
      expect(much.stderr).toContain('No space left');
      await sh(cay, 'head -c 4000000 /dev/zero > /mnt/data/fits && rm /mnt/data/much');
      const { usage } = await cay.json<{ usage: Record<string, object> }>('quota', 'show');
      expect(usage['bucketMounts']).toEqual({ used: 1, limit: 1 });
      await ok(cay, 'rm', 'box');
      await ok(cay, 'create', '--name', 'other', '--bucket', 'data:/mnt/data,mount');
    }, 120_000);
  });
}

const leftIn = (dataDir: string) => {
  try {
    return readdirSync(join(dataDir, 'engine', 'bucket-writes'));
  } catch {
    return [];
  }
};

async function* one(text: string): AsyncGenerator<Buffer, void> {
  yield Buffer.from(text);
}
