/** Pauses, snapshots and forks that keep memory, through a published client. */
import type * as e2b from 'e2b';
import { afterAll, describe, expect, it } from 'vitest';
import { eventually, visit, type E2bPlatform } from './e2b-platform.ts';

/** Counts in memory alone: who asks gets the next number, so a number that goes on is the same process. */
const COUNTER = `
import http.server
class Counter(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_GET(self):
        Counter.count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(Counter.count).encode())
http.server.HTTPServer(("127.0.0.1", 8000), Counter).serve_forever()
`;

export function memorySuite(client: typeof e2b, platform: () => E2bPlatform): void {
  const { Sandbox } = client;

  describe('what keeps memory', () => {
    const made: e2b.Sandbox[] = [];
    afterAll(() => Promise.all(made.map((sandbox) => sandbox.kill())));

    const counting = async (options: e2b.SandboxOpts = {}) => {
      const sandbox = await Sandbox.create({ ...platform().access, ...options });
      made.push(sandbox);
      await sandbox.files.write('counter.py', COUNTER);
      await sandbox.commands.run('python3 counter.py', { background: true, timeoutMs: 0 });
      await eventually(async () => (await visit(platform().url, sandbox.getHost(8000))).status === 200);
      return sandbox;
    };
    const count = async (sandbox: e2b.Sandbox) => {
      const { status, body } = await visit(platform().url, sandbox.getHost(8000));
      return status === 200 ? Number(body) : `status ${status}`;
    };

    it('pauses and goes on with its processes', async () => {
      const sandbox = await counting();
      const before = await count(sandbox);
      expect(await sandbox.pause()).toBe(true);
      expect(await sandbox.pause()).toBe(false);
      expect((await sandbox.getInfo()).state).toBe('paused');
      expect(await sandbox.isRunning()).toBe(false);
      expect(await count(sandbox)).toBe('status 502');
      await expect(sandbox.commands.run('true')).rejects.toBeInstanceOf(client.SandboxNotFoundError);
      await sandbox.connect();
      expect(await sandbox.isRunning()).toBe(true);
      expect(await count(sandbox)).toBe(Number(before) + 1);
    });

    it('is given time by traffic that wakes it: that of its creation, and at least five minutes', async () => {
      for (const [timeoutMs, expected] of [
        [60_000, 300_000],
        [900_000, 900_000],
      ] as const) {
        const sandbox = await counting({
          timeoutMs,
          lifecycle: { onTimeout: 'pause', autoResume: true },
        });
        await sandbox.setTimeout(1_800_000);
        await sandbox.pause();
        expect(await count(sandbox)).toEqual(expect.any(Number));
        const left = (await sandbox.getInfo()).endAt.getTime() - Date.now();
        expect(Math.abs(left - expected)).toBeLessThan(30_000);
      }
    });

    it('is paused once by callers that ask at the same time', async () => {
      const sandbox = await counting();
      const pauses = await Promise.all(Array.from({ length: 5 }, () => sandbox.pause()));
      expect(pauses).toEqual([true, true, true, true, true]);
      expect(await sandbox.pause()).toBe(false);
    });

    it('is removed while it is paused, kept or forked', async () => {
      for (const doing of ['pause', 'createSnapshot', 'fork'] as const) {
        const sandbox = await counting();
        const under = sandbox[doing]().then(
          () => 'done',
          () => 'refused',
        );
        await new Promise((resolve) => setTimeout(resolve, 50));
        expect(await sandbox.kill()).toBe(true);
        await under;
        await expect(sandbox.getInfo()).rejects.toThrow();
      }
    });

    it('pauses with its files alone if that is asked for', async () => {
      const sandbox = await counting();
      const boot = async () => (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout;
      const before = await boot();
      await sandbox.pause();
      await sandbox.connect();
      expect(await boot()).toBe(before);
      expect(await sandbox.pause({ keepMemory: false })).toBe(true);
      await sandbox.connect();
      expect(await boot()).not.toBe(before);
      expect(await sandbox.files.exists('counter.py')).toBe(true);
      expect(await count(sandbox)).toBe('status 502');
    });

    it('goes on with what was under way', async () => {
      const sandbox = await counting({ envs: { KEPT: 'yes' } });
      const { pid } = await sandbox.commands.run('sleep 1 && echo done > done.txt; sleep 1000', {
        background: true,
      });
      await sandbox.pause();
      await sandbox.connect();
      expect((await sandbox.commands.list()).map((process) => process.pid)).toContain(pid);
      expect((await sandbox.commands.connect(pid)).pid).toBe(pid);
      expect((await sandbox.commands.run('echo $KEPT')).stdout).toBe('yes\n');
      await eventually(() => sandbox.files.exists('done.txt'));
    });

    it('lists what is paused among what runs, page by page', async () => {
      const metadata = { group: `paused ${Math.random()}` };
      const first = await Sandbox.create({ ...platform().access, metadata });
      const second = await Sandbox.create({ ...platform().access, metadata });
      made.push(first, second);
      await first.pause();
      const pages = async (state: e2b.SandboxState[]) => {
        const found: string[][] = [];
        const paginator = Sandbox.list({ ...platform().access, limit: 1, query: { metadata, state } });
        while (paginator.hasNext)
          found.push((await paginator.nextItems()).map((info) => `${info.sandboxId} ${info.state}`));
        return found;
      };
      expect(await pages(['running', 'paused'])).toEqual([
        [`${second.sandboxId} running`],
        [`${first.sandboxId} paused`],
      ]);
      expect(await pages(['paused'])).toEqual([[`${first.sandboxId} paused`]]);
    });

    it('stays paused unless it may wake by itself', async () => {
      const sandbox = await counting({ lifecycle: { onTimeout: 'pause', autoResume: false } });
      await sandbox.setTimeout(1000);
      await eventually(async () => (await sandbox.getInfo()).state === 'paused');
      expect(await count(sandbox)).toBe('status 502');
      expect((await sandbox.getInfo()).state).toBe('paused');
      await sandbox.connect();
      expect(await count(sandbox)).toEqual(expect.any(Number));
    });

    it('pauses by itself when its time is up, and wakes for those who come', async () => {
      const sandbox = await counting({ lifecycle: { onTimeout: 'pause', autoResume: true } });
      expect((await sandbox.getInfo()).lifecycle).toEqual({ onTimeout: 'pause', autoResume: true });
      const before = await count(sandbox);
      await sandbox.setTimeout(1000);
      await eventually(async () => (await sandbox.getInfo()).state === 'paused');
      expect(await count(sandbox)).toBe(Number(before) + 1);
      expect((await sandbox.getInfo()).state).toBe('running');
    });

    it('forks with its processes, as often as is asked for', async () => {
      const sandbox = await counting();
      const before = Number(await count(sandbox));
      const forks = (await sandbox.fork({ count: 2 })) as e2b.Sandbox[];
      made.push(...forks);
      expect(forks).toHaveLength(2);
      for (const fork of forks) {
        expect(await count(fork)).toBe(before + 1);
        expect((await fork.commands.run('ls')).stdout).toContain('counter.py');
      }
      expect(await count(sandbox)).toBe(before + 1);
      await expect(sandbox.fork({ count: 0 })).rejects.toThrow();
    });

    it('keeps snapshots that sandboxes start from, by id and by name', async () => {
      const sandbox = await counting();
      const before = Number(await count(sandbox));
      const snapshot = await sandbox.createSnapshot({ name: 'counting' });
      expect(snapshot.names).toEqual(['counting']);
      for (const template of [snapshot.snapshotId, 'counting']) {
        const child = await Sandbox.create(template, platform().access);
        made.push(child);
        expect(await count(child)).toBe(before + 1);
        await child.kill();
      }
      const listed = async (paginator: e2b.SnapshotPaginator) =>
        (await paginator.nextItems()).map(({ snapshotId }) => snapshotId);
      expect(await listed(sandbox.listSnapshots())).toEqual([snapshot.snapshotId]);
      expect(await listed(Sandbox.listSnapshots(platform().access))).toContain(snapshot.snapshotId);
      expect(await listed(Sandbox.listSnapshots({ ...platform().access, name: 'counting' }))).toEqual([
        snapshot.snapshotId,
      ]);
      expect(await listed(Sandbox.listSnapshots({ ...platform().access, name: 'never' }))).toEqual([]);
      expect(await listed(Sandbox.listSnapshots(platform().stranger))).toEqual([]);
      expect(await Sandbox.deleteSnapshot(snapshot.snapshotId, platform().access)).toBe(true);
      expect(await Sandbox.deleteSnapshot(snapshot.snapshotId, platform().access)).toBe(false);
    });
  });
}
