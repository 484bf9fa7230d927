/**
 * What programs of a sandbox reach: real programs, a real server, and targets on loopback that stand for the
 * internet.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createSocket } from 'node:dgram';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join, normalize } from 'node:path';
import { enforcementReports, runEnforcementReport, Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { askByUdp, UDP_ECHO } from '../support/udp.ts';
import { openEgressServer, type EgressServer } from './egress-server.ts';

/** Whom servers of the internet have their certificates from. */
const outside = openAuthority(newAuthority());

export function networkSuite(runtime: string): void {
  const reason = whyNoLocal() ?? (runtime === 'runc' ? undefined : whyLater());
  describe.skipIf(reason !== undefined)(
    `the network on ${runtime}${reason ? ` (skipped: ${reason})` : ''}`,
    () => {
      const dir = mkdtempSync('/tmp/cay-net-');
      // Users of sandboxes pass through it.
      chmodSync(dir, 0o711);
      let served: EgressServer | undefined;
      let port: number;
      let stop = () => {};
      let access: { url: string; apiKey: string };
      const name = 'web.example.org';
      const url = () => `http://${name}:${port}`;
      const rule = () => `${name}:${port}`;

      /** Opens everything anew on the same data, as a restart does. */
      async function open(): Promise<void> {
        served = await openEgressServer({
          dir,
          runtime,
          names: [name],
          trusted: [outside.certificate],
          apiKey: served?.access.apiKey,
        });
        ({ access } = served);
      }

      const close = () => served!.close();

      beforeAll(async () => {
        const site = join(dir, 'site');
        const git = (...args: string[]) => execFileSync('git', args, { stdio: 'ignore' });
        git('init', '--initial-branch=main', site);
        writeFileSync(join(site, 'hello.txt'), 'hello from outside\n');
        const identity = ['-c', 'user.name=test', '-c', 'user.email=test@example.org'];
        git('-C', site, 'add', 'hello.txt');
        git('-C', site, ...identity, 'commit', '-m', 'first');
        git('-C', site, 'update-server-info');
        const files = createServer((request, response) => {
          if (request.method === 'PUT') return void request.pipe(response);
          const path = normalize(new URL(request.url!, 'http://x').pathname);
          try {
            response.end(readFileSync(join(site, path)));
          } catch {
            response.writeHead(404).end();
          }
        });
        files.listen(0, '127.0.0.1');
        await once(files, 'listening');
        port = (files.address() as AddressInfo).port;
        stop = () => void files.close();
        await open();
      }, 120_000);
      afterAll(async () => {
        stop();
        await served?.destroy();
      }, 120_000);

      it(
        'curl, Python and git reach what the policy allows, and nothing else',
        { timeout: 120_000 },
        async () => {
          await using sandbox = await Sandbox.create({ runtime, network: { allow: [rule()] } }, access);
          const programs = [
            `curl -sSf ${url()}/hello.txt`,
            `python3 -c "import urllib.request as r; print(r.urlopen('${url()}/hello.txt').read().decode(), end='')"`,
            `git clone -q ${url()}/.git there && cat there/hello.txt && rm -r there`,
          ];
          for (const program of programs)
            expect(await sandbox.exec(program)).toMatchObject({
              exitCode: 0,
              stdout: 'hello from outside\n',
            });
          const other = await sandbox.exec('curl -sSf -m 10 https://other.example.org/');
          expect(other.exitCode).not.toBe(0);
          expect(other.stderr).toContain('403');
          expect(other.denied).toMatchObject([{ name: 'other.example.org', port: 443 }]);
          await sandbox.network.set('none');
          for (const program of programs) expect((await sandbox.exec(program)).exitCode).not.toBe(0);
          // Explained here too, and no unknown certificate, at which package managers try again for a minute.
          await using closed = await Sandbox.create({ runtime, network: 'none' }, access);
          expect((await closed.exec('curl -sSf -m 10 https://other.example.org/')).stderr).toContain('403');
          expect((await sandbox.network.attempts()).map(({ verdict }) => verdict)).toContain('denied');
          await sandbox.network.allow(rule());
          expect(await sandbox.exec(programs[0]!)).toMatchObject({ exitCode: 0 });
          const { networkRxBytes, networkTxBytes } = await sandbox.stats();
          expect(networkRxBytes).toBeGreaterThan(0);
          expect(networkTxBytes).toBeGreaterThan(0);
        },
      );

      it('a change cuts connections, forks and clones keep the policy', { timeout: 120_000 }, async () => {
        await using sandbox = await Sandbox.create({ runtime, network: { allow: [rule()] } }, access);
        const script = `import socket; s = socket.create_connection(("${name}", ${port})); s.send(b"GET"); print(s.recv(1))`;
        const held = sandbox.exec(['python3', '-c', script]);
        await vi.waitFor(async () => expect((await sandbox.network.get()).stats!.connections).toBe(1), {
          timeout: 30_000,
        });
        const [child] = await sandbox.fork(1);
        expect((await child!.exec(`curl -sSf ${url()}/hello.txt`)).stdout).toBe('hello from outside\n');
        await sandbox.network.set('none');
        expect(['', "b''\n"]).toContain((await held).stdout);
        expect((await child!.exec(`curl -sSf ${url()}/hello.txt`)).exitCode).toBe(0);
        await child!.kill();
      });

      it('programs trust the server where a rule looks at requests', { timeout: 120_000 }, async () => {
        const api = 'api.example.org';
        const upstream = createSecureServer(
          { SNICallback: (_name, done) => done(null, outside.contextFor(api)) },
          (request, response) => {
            if (request.method === 'PUT') request.pipe(response);
            else response.end(`${request.method} as ${String(request.headers['x-from'])}`);
          },
        );
        upstream.listen(0, '127.0.0.1');
        await once(upstream, 'listening');
        const to = `${api}:${(upstream.address() as AddressInfo).port}`;
        served!.names.set(api, ['127.0.0.1']);
        const put = { as: 'header', header: 'x-from', value: 'the server' } as const;
        const network = { allow: [{ to, methods: ['GET', 'PUT'], put }] };
        await using sandbox = await Sandbox.create({ runtime, network }, access);
        const python = `import urllib.request as r; print(r.urlopen('https://${to}/').read().decode(), end='')`;
        for (const command of [
          ['curl', '-sS', `https://${to}/`],
          ['python3', '-c', python],
        ])
          expect(await sandbox.exec(command)).toMatchObject({
            exitCode: 0,
            stdout: 'GET as the server',
            stderr: '',
          });
        await sandbox.network.allow(rule());
        for (const site of [`https://${to}/`, `${url()}/`]) {
          const echo = `head -c 30000000 /dev/urandom > sent && curl -sS -T sent ${site} -o got && cmp sent got`;
          expect(await sandbox.exec(echo)).toMatchObject({ exitCode: 0, stderr: '' });
        }
        const post = await sandbox.exec(['curl', '-sS', '-f', '-X', 'POST', `https://${to}/`]);
        expect(post).toMatchObject({
          stderr: expect.stringContaining('403'),
          exitCode: 22,
          denied: [{ name: api, reason: 'http_condition' }],
        });
        upstream.close();
      });

      it('an enforcement report says what is blocked, and is kept', { timeout: 300_000 }, async () => {
        expect(await enforcementReports('local', access)).toEqual([]);
        const report = await runEnforcementReport('local', { ...access, runtime });
        const wrong = report.cases.filter(({ state }) => state === 'open' || state === 'broken');
        expect(wrong).toEqual([]);
        expect(report).toMatchObject({ platform: 'local', runtime, verdict: 'enforced' });
        expect(report.counts.blocked).toBeGreaterThan(150);
        expect(await enforcementReports('local', access)).toEqual([report]);
        await expect(runEnforcementReport('elsewhere', access)).rejects.toMatchObject({ code: 'not_found' });
        for await (const { info } of Sandbox.list(access))
          expect(info.name ?? '').not.toContain('enforcement');
      });

      it(
        'sandboxes of one named network reach each other by name, over forks and restarts',
        { timeout: 180_000 },
        async () => {
          const serve_ = ['python3', '-m', 'http.server', '8000'];
          const network = 'none' as const;
          const db = await Sandbox.create(
            { runtime, name: 'db', networks: ['team'], network, cmd: serve_ },
            access,
          );
          const app = await Sandbox.create({ runtime, name: 'app', networks: ['team'], network }, access);
          const alone = await Sandbox.create({ runtime, name: 'alone', network }, access);
          const get = (from: Sandbox, name = 'db') =>
            from.exec(`curl -sS -o /dev/null -w '%{http_code}' -m 10 http://${name}:8000/`);
          await expect.poll(async () => (await get(app)).stdout, { timeout: 30_000 }).toBe('200');
          expect((await get(alone)).exitCode).not.toBe(0);
          expect((await get(app, 'alone')).exitCode).not.toBe(0);
          expect((await app.network.attempts())[0]).toMatchObject({ name: 'db', rule: 'network: team' });
          const turn = await app.turn();
          await app.rollback(turn.turn!);
          expect((await get(app)).stdout).toBe('200');
          const [child] = await db.fork(1, { namePrefix: 'copy' });
          if (runtime === 'runsc') expect((await get(app, 'copy-1')).stdout).toBe('200');
          await child!.kill();
          await db.pause({});
          expect((await get(app)).stdout).toBe('200');
          await close();
          await open();
          const [again, other] = [await Sandbox.connect('app', access), await Sandbox.connect('db', access)];
          expect((await get(again)).stdout).toBe('200');
          await other.update({ networks: [] });
          expect((await get(again)).exitCode).not.toBe(0);
          for (const one of [again, other, await Sandbox.connect('alone', access)]) await one.kill();
        },
      );

      it(
        'a published port leads inside, wakes the sandbox, and outlives the server',
        { timeout: 120_000 },
        async () => {
          const sandbox = await Sandbox.create(
            { runtime, publish: [{ port: 8000 }], cmd: ['python3', '-m', 'http.server', '8000'] },
            access,
          );
          const { published } = await sandbox.ports();
          const visit = async () =>
            (await fetch(`http://127.0.0.1:${published[0]!.hostPort}/`, { headers: { connection: 'close' } }))
              .status;
          await expect.poll(() => visit().catch(() => 0), { timeout: 30_000 }).toBe(200);
          await sandbox.pause({});
          expect(await visit()).toBe(200);
          await close();
          await expect(visit()).rejects.toThrow();
          await open();
          expect(await visit()).toBe(200);
          const again = await Sandbox.connect(sandbox.id, access);
          expect((await again.ports()).published).toEqual(published);
          await again.kill();
          await expect(visit()).rejects.toThrow();
        },
      );

      it(
        'a port that is published over UDP leads inside, wakes the sandbox, and outlives the server',
        { timeout: 120_000 },
        async () => {
          const sandbox = await Sandbox.create(
            {
              runtime,
              publish: [{ port: 53, protocol: 'udp' }, { port: 53 }],
              cmd: UDP_ECHO(53, '127.0.0.1'),
              user: 'root',
            },
            access,
          );
          const [udp] = (await sandbox.ports()).published.filter(({ protocol }) => protocol === 'udp');
          const { hostPort } = udp!;
          expect(await askByUdp(hostPort, 'one')).toBe('echo one');
          expect(await askByUdp(hostPort, 'x'.repeat(9000))).toBe(`echo ${'x'.repeat(9000)}`);
          const many = await Promise.all([...Array(50).keys()].map((n) => askByUdp(hostPort, `client ${n}`)));
          expect(many).toEqual([...Array(50).keys()].map((n) => `echo client ${n}`));
          await sandbox.pause({});
          expect(await askByUdp(hostPort, 'two')).toBe('echo two');
          // A port of the same number over TCP is another one.
          const same = await sandbox.publish({ port: 53, hostPort });
          expect(same).toMatchObject({ hostPort, protocol: 'tcp' });
          await expect(sandbox.publish({ port: 54, hostPort, protocol: 'udp' })).rejects.toMatchObject({
            code: 'conflict',
          });
          await sandbox.unpublish(hostPort);
          const [child] = await sandbox.fork(1);
          expect((await child!.ports()).published).toEqual([]);
          await child!.kill();
          await close();
          expect(await askByUdp(hostPort, 'closed', 1000)).toBe('');
          await open();
          expect(await askByUdp(hostPort, 'three')).toBe('echo three');
          const again = await Sandbox.connect(sandbox.id, access);
          const before = await again.turn();
          await again.rollback(before.turn!);
          await again.stop();
          await again.start();
          expect(await askByUdp(hostPort, 'four')).toBe('echo four');
          await again.unpublish(hostPort, { protocol: 'udp' });
          expect(await askByUdp(hostPort, 'gone', 1000)).toBe('');
          await again.kill();
        },
      );

      it(
        'a rule for UDP holds in forks and clones, and after a pause, a rollback and a restart',
        { timeout: 180_000 },
        async () => {
          const outside = createSocket('udp4');
          outside.on('message', (text, { port: to, address }) =>
            outside.send(`got ${text.toString()}`, to, address),
          );
          outside.bind(0, '127.0.0.1');
          await once(outside, 'listening');
          const udp = outside.address().port;
          const sandbox = await Sandbox.create(
            { runtime, network: { allow: [`udp:${name}:${udp}`] } },
            access,
          );
          const script = `import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(("${name}", ${udp})); s.send(b"hello"); print(s.recv(99).decode(), end="")`;
          const sends = async (from: Sandbox, reaches = true) => {
            const { stdout, stderr } = await from.exec(['python3', '-c', script]);
            if (reaches) expect(`${stdout}${stderr}`).toBe('got hello');
            else expect(stderr).toContain('ConnectionRefusedError');
          };
          await sends(sandbox);
          const turn = await sandbox.turn();
          const snapshot = await sandbox.snapshot({});
          for (const copy of [
            ...(await sandbox.fork(1)),
            await Sandbox.create({ runtime, snapshot: snapshot.id }, access),
          ]) {
            await sends(copy);
            await copy.kill();
          }
          await sandbox.pause({ as: runtime === 'runsc' ? 'hibernated' : 'frozen' });
          await sends(sandbox);
          await sandbox.rollback(turn.turn!);
          await sends(sandbox);
          await close();
          await open();
          const again = await Sandbox.connect(sandbox.id, access);
          await sends(again);
          await again.network.set({ allow: [rule()] });
          await sends(again, false);
          const [child] = await again.fork(1);
          await sends(child!, false);
          await child!.kill();
          await again.kill();
          outside.close();
        },
      );

      it('a server that starts again keeps the policies', { timeout: 120_000 }, async () => {
        const open_ = await Sandbox.create({ runtime, network: { allow: [rule()] } }, access);
        const closed = await Sandbox.create({ runtime, network: 'none' }, access);
        await close();
        await open();
        const again = await Sandbox.connect(open_.id, access);
        expect((await again.exec(`curl -sSf ${url()}/hello.txt`)).stdout).toBe('hello from outside\n');
        const shut = await Sandbox.connect(closed.id, access);
        expect((await shut.exec(`curl -sS -m 10 ${url()}/hello.txt`)).exitCode).not.toBe(0);
      });
    },
  );
}
