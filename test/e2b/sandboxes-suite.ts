/** The life of sandboxes through a published client. */
import type * as e2b from 'e2b';
import { afterAll, describe, expect, it } from 'vitest';
import { eventually, visit, type E2bPlatform } from './e2b-platform.ts';

export function sandboxesSuite(client: typeof e2b, platform: () => E2bPlatform): void {
  const { Sandbox } = client;

  describe('sandboxes', () => {
    const made: e2b.Sandbox[] = [];
    const create = async (options: e2b.SandboxOpts = {}) => {
      const sandbox = await Sandbox.create({ ...platform().access, ...options });
      made.push(sandbox);
      return sandbox;
    };
    afterAll(() => Promise.all(made.map((sandbox) => sandbox.kill())));

    it('tells about a sandbox', async () => {
      const before = Date.now();
      const sandbox = await create({ timeoutMs: 90_000, metadata: { 'a key': 'a & b=c' } });
      const info = await sandbox.getInfo();
      expect(info).toMatchObject({
        sandboxId: sandbox.sandboxId,
        templateId: 'base',
        name: 'base',
        state: 'running',
        metadata: { 'a key': 'a & b=c' },
        lifecycle: { onTimeout: 'kill', autoResume: false },
      });
      expect(info.endAt.getTime() - before).toBeGreaterThan(80_000);
      expect(info.endAt.getTime() - before).toBeLessThan(100_000);
      expect(sandbox.sandboxId).toMatch(/^[a-z0-9]{20}$/);
    });

    it('lists by metadata and state, page by page, in either order', async () => {
      const group = `group ${Math.random()}`;
      const ids: string[] = [];
      for (let index = 0; index < 3; index++)
        ids.push((await create({ metadata: { group, index: String(index) } })).sandboxId);
      const all = async (options: e2b.SandboxListOpts) => {
        const pages: string[][] = [];
        const paginator = Sandbox.list({
          ...platform().access,
          ...options,
          query: { metadata: { group }, ...options.query },
        });
        while (paginator.hasNext) pages.push((await paginator.nextItems()).map(({ sandboxId }) => sandboxId));
        return pages;
      };
      expect(await all({})).toEqual([ids.toReversed()]);
      expect(await all({ limit: 2 })).toEqual([ids.toReversed().slice(0, 2), ids.toReversed().slice(2)]);
      expect(await all({ limit: 2, order: 'asc' })).toEqual([ids.slice(0, 2), ids.slice(2)]);
      expect(await all({ query: { metadata: { group, index: '1' } } })).toEqual([[ids[1]]]);
      expect(await all({ query: { state: ['paused'] } })).toEqual([[]]);
      expect(await all({ query: { state: ['running', 'paused'] } })).toEqual([ids.toReversed()]);
    });

    it('does not know sandboxes and templates that are not there', async () => {
      const access = platform().access;
      await expect(Sandbox.create('no-such-template', access)).rejects.toThrow(/^404: .*no-such-template/);
      await expect(Sandbox.connect('i0000000000000000000', access)).rejects.toBeInstanceOf(
        client.SandboxNotFoundError,
      );
      await expect(Sandbox.getInfo('i0000000000000000000', access)).rejects.toBeInstanceOf(
        client.SandboxNotFoundError,
      );
      await expect(Sandbox.setTimeout('i0000000000000000000', 1000, access)).rejects.toBeInstanceOf(
        client.SandboxNotFoundError,
      );
      expect(await Sandbox.kill('i0000000000000000000', access)).toBe(false);
      expect(await Sandbox.kill('../v1/sandboxes', access)).toBe(false);
    });

    it('connects to the same sandbox, and lets it live longer but never shorter', async () => {
      const sandbox = await create({ timeoutMs: 60_000 });
      await sandbox.files.write('note', 'same');
      const { endAt } = await sandbox.getInfo();
      const shorter = await Sandbox.connect(sandbox.sandboxId, { ...platform().access, timeoutMs: 10_000 });
      expect(await shorter.files.read('note')).toBe('same');
      expect((await sandbox.getInfo()).endAt).toEqual(endAt);
      await sandbox.connect({ timeoutMs: 120_000 });
      expect((await sandbox.getInfo()).endAt.getTime()).toBeGreaterThan(endAt.getTime() + 30_000);
    });

    it('ends a sandbox when its time is up, which can be changed', async () => {
      const sandbox = await create();
      await sandbox.setTimeout(1000);
      await eventually(async () => !(await sandbox.isRunning()));
      await expect(sandbox.commands.run('true')).rejects.toBeInstanceOf(client.SandboxNotFoundError);
      await expect(sandbox.files.read('note')).rejects.toBeInstanceOf(client.TimeoutError);
      expect(await sandbox.kill()).toBe(false);
    });

    it('kills a sandbox, and a client that waits for a command in it gets an error', async () => {
      const sandbox = await create();
      const waiting = sandbox.commands.run('sleep 1000', { timeoutMs: 0 }).catch((error: unknown) => error);
      await eventually(async () => (await sandbox.commands.list()).length === 1);
      expect(await sandbox.kill()).toBe(true);
      expect(await sandbox.isRunning()).toBe(false);
      expect(await waiting).toBeInstanceOf(client.TimeoutError);
      expect(String(await waiting)).toContain('killed or reached its end of life');
      expect(await sandbox.kill()).toBe(false);
    });

    it('measures', async () => {
      const sandbox = await create();
      const [metric] = await sandbox.getMetrics();
      expect(metric!.cpuCount).toBeGreaterThan(0);
      expect(metric!.memTotal).toBeGreaterThan(metric!.memUsed);
      expect(metric!.diskTotal).toBeGreaterThan(0);
      expect(await sandbox.getMetrics({ end: new Date(Date.now() - 3_600_000) })).toEqual([]);
    });

    it('shows ports to everybody who knows the host, or only with the traffic token', async () => {
      const { url } = platform();
      const serving = async (options: e2b.SandboxOpts) => {
        const sandbox = await create(options);
        await sandbox.files.write('index.html', `I am ${sandbox.sandboxId}`);
        await sandbox.commands.run('python3 -m http.server 8000', { background: true });
        const host = sandbox.getHost(8000);
        const token = (sandbox as { trafficAccessToken?: string }).trafficAccessToken;
        const headers: Record<string, string> =
          token === undefined ? {} : { 'e2b-traffic-access-token': token };
        await eventually(async () => (await visit(url, host, '/', headers)).status === 200);
        return { sandbox, host, headers };
      };
      const open = await serving({});
      expect(await visit(url, open.host)).toEqual({ status: 200, body: `I am ${open.sandbox.sandboxId}` });
      expect(await visit(url, open.sandbox.getHost(8001))).toMatchObject({
        status: 502,
        body: expect.stringContaining('port is not open'),
      });
      const closed = await serving({ network: { allowPublicTraffic: false } });
      expect(await visit(url, closed.host)).toMatchObject({ status: 403 });
      expect(await visit(url, closed.host, '/', { 'e2b-traffic-access-token': 'wrong' })).toMatchObject({
        status: 403,
      });
      expect(await visit(url, closed.host, '/', open.headers)).toMatchObject({ status: 403 });
      expect(await visit(url, closed.host, '/', closed.headers)).toMatchObject({ status: 200 });
      await open.sandbox.kill();
      expect(await visit(url, open.host)).toMatchObject({
        status: 502,
        body: expect.stringContaining('The sandbox was not found'),
      });
    });

    it('tells an application the host that its maker chose', async () => {
      const sandbox = await create({ network: { maskRequestHost: 'masked.example:${PORT}' } });
      await sandbox.files.write(
        'show.py',
        'import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_GET(self):\n    self.send_response(200); self.end_headers(); self.wfile.write(str(self.headers).encode())\nhttp.server.HTTPServer(("127.0.0.1", 8000), H).serve_forever()\n',
      );
      await sandbox.commands.run('python3 show.py', { background: true });
      await eventually(async () =>
        (await visit(platform().url, sandbox.getHost(8000))).body.includes('Host: masked.example:8000\n'),
      );
      expect((await sandbox.getInfo()).network?.maskRequestHost).toBe('masked.example:${PORT}');
    });

    it('refuses what it could only pretend to do', async () => {
      const access = platform().access;
      await expect(Sandbox.create({ ...access, network: { allowOut: ['example.com'] } })).rejects.toThrow(
        /^501: /,
      );
      await expect(
        Sandbox.create({ ...access, volumeMounts: { '/data': 'volume' } } as e2b.SandboxOpts),
      ).rejects.toThrow(/volume/i);
      await expect(Sandbox.create({ ...access, metadata: { big: 'x'.repeat(5000) } })).rejects.toThrow(
        /^400: /,
      );
      const sandbox = await create({ network: { denyOut: [client.ALL_TRAFFIC] } });
      expect((await sandbox.getInfo()).allowInternetAccess).toBe(false);
      expect(
        (await sandbox.commands.run('(exec 3<>/dev/tcp/1.1.1.1/80) 2>/dev/null || echo none')).stdout,
      ).toBe('none\n');
      // An update to the network that it has already is accepted; no other is.
      await sandbox.updateNetwork({ denyOut: [client.ALL_TRAFFIC] });
      await expect(sandbox.updateNetwork({ allowOut: ['example.com'] })).rejects.toThrow(/^501: /);
      await expect(
        sandbox.updateNetwork({ rules: { 'example.com': [{ transform: { headers: { a: 'b' } } }] } }),
      ).rejects.toThrow(/^501: /);
      await expect(Sandbox.updateNetwork('i0000000000000000000', {}, access)).rejects.toBeInstanceOf(
        client.SandboxNotFoundError,
      );
    });

    it('pauses with its files alone, and by itself too', async () => {
      const sandbox = await create();
      await sandbox.files.write('note', 'kept');
      expect(await sandbox.pause({ keepMemory: false })).toBe(true);
      expect(await sandbox.pause({ keepMemory: false })).toBe(false);
      expect((await sandbox.getInfo()).state).toBe('paused');
      expect(await sandbox.isRunning()).toBe(false);
      const again = await Sandbox.connect(sandbox.sandboxId, platform().access);
      expect(await again.files.read('note')).toBe('kept');
      const listed = await Sandbox.list({ ...platform().access, query: { state: ['paused'] } }).nextItems();
      expect(listed.map(({ sandboxId }) => sandboxId)).not.toContain(sandbox.sandboxId);
    });
  });
}
