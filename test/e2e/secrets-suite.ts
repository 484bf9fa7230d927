/**
 * Credentials at the boundary: real clients in real sandboxes, against registries that ask for credentials.
 */
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync } from 'node:fs';
import { createServer as createSecureServer } from 'node:https';
import { connect, createServer as createTcp, type AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { Sandbox, Secrets, type NetworkRule, type Put } from '@cay/sdk';
import * as e2b from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { echoWebSockets } from '../../server/src/egress/testing/servers.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { postgresMissing, startPostgres } from '../support/postgres.ts';
import { sshdMissing, startSshd } from '../support/sshd.ts';
import { whyLater } from '../support/tier.ts';
import { clientPrograms } from './client-programs.ts';
import { openEgressServer, type EgressServer } from './egress-server.ts';
import { CREDENTIALS, makeRepository, openRegistries, type Registries } from './registries.ts';

const outside = openAuthority(newAuthority());
const VALUES = { PYPI: 'value-of-pypi', NPM: 'value-of-npm', GIT: 'value-of-git', DEB: 'value-of-deb' };

const skippedSuffix = (why: string | undefined) => (why === undefined ? '' : ` (skipped: ${why})`);

export function secretsSuite(runtime: string): void {
  const reason = whyNoLocal() ?? (runtime === 'runc' ? undefined : whyLater());
  describe.skipIf(reason !== undefined)(
    `credentials on ${runtime}${reason ? ` (skipped: ${reason})` : ''}`,
    { timeout: 180_000 },
    () => {
      const dir = mkdtempSync('/tmp/cay-secrets-');
      chmodSync(dir, 0o711);
      let served: EgressServer | undefined;
      let registries: Registries;
      let access: { url: string; apiKey: string };

      async function open(): Promise<void> {
        served = await openEgressServer({
          dir,
          runtime,
          names: Object.keys(CREDENTIALS),
          trusted: [outside.certificate],
          apiKey: served?.access.apiKey,
        });
        ({ access } = served);
      }

      beforeAll(async () => {
        registries = await openRegistries(dir, outside);
        await open();
        const secrets = new Secrets(access);
        for (const [name, value] of Object.entries(VALUES)) await secrets.set(name, value);
      }, 120_000);
      afterAll(async () => {
        registries[Symbol.dispose]();
        await served?.destroy();
      }, 120_000);

      const at = (name: string) => `${name}.example.org:${registries.port}`;
      const rules = (): NetworkRule[] => [
        { to: at('pypi'), put: { as: 'basic', username: 'robot', secret: 'PYPI' } },
        {
          to: at('npm'),
          put: { as: 'header', header: 'Authorization', value: 'Bearer {secret}', secret: 'NPM' },
        },
        { to: at('git'), put: { as: 'git', secret: 'GIT' } },
        { to: at('deb'), put: { as: 'basic', username: 'robot', secret: 'DEB' } },
      ];
      const programs = () => clientPrograms(at);

      it('pip, npm, apt and git install packages with credentials that they do not have', async () => {
        await using sandbox = await Sandbox.create({ runtime, network: { allow: rules() } }, access);
        for (const [name, program] of Object.entries(programs())) {
          const user = name === 'apt' ? { user: 'root' } : {};
          const { stdout, stderr, exitCode } = await sandbox.exec(program, user);
          expect({ exitCode, stderr: exitCode === 0 ? '' : stderr, stdout }).toEqual({
            exitCode: 0,
            stderr: '',
            stdout: name === 'git' ? 'the repository of git\n' : `the package of ${name}\n`,
          });
        }
        const push = await sandbox.exec(
          'cd ~/there && echo more > more.txt && git add . && git -c user.name=t -c user.email=t@example.org commit -qm more && git push -q origin HEAD:pushed 2>&1',
        );
        expect(push).toMatchObject({ exitCode: 0, stdout: '' });
        for (const name of Object.keys(VALUES).map((one) => `${one.toLowerCase()}.example.org`))
          expect([...registries.seen.get(name)!]).toEqual([CREDENTIALS[name as keyof typeof CREDENTIALS]]);
        // Nowhere inside: environment and arguments of processes, and files.
        const search = `cat /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -ac 'value[-]of-'; grep -rl 'value[-]of-' ~ /tmp /run /etc 2>/dev/null`;
        expect((await sandbox.exec(search)).stdout.trim()).toBe('0');
      });

      it.skipIf(sshdMissing() !== undefined)(
        `git clones and pushes over SSH with a key that it does not have${skippedSuffix(sshdMissing())}`,
        async () => {
          const place = join(dir, 'ssh');
          mkdirSync(place);
          using sshd = await startSshd(place);
          const repository = join(makeRepository(place), 'demo.git');
          const to = `git.example.org:${sshd.port}`;
          await new Secrets(access).set('DEPLOY', sshd.clientKey);
          const knownHosts = [sshd.hostKey.split(' ').slice(0, 2).join(' ')];
          const put: Put = { as: 'ssh', secret: 'DEPLOY', username: userInfo().username, knownHosts };
          await using sandbox = await Sandbox.create({ runtime, network: { allow: [{ to, put }] } }, access);
          const url = `ssh://git@${to}${repository}`;
          const clone = await sandbox.exec(`git clone -q ${url} ~/over-ssh && cat ~/over-ssh/hello.txt`);
          expect(clone).toMatchObject({ exitCode: 0, stdout: 'the repository of git\n' });
          const push = await sandbox.exec(
            'cd ~/over-ssh && echo more > more.txt && git add . && git -c user.name=t -c user.email=t@example.org commit -qm more && git push -q origin HEAD:pushed',
          );
          expect(push).toMatchObject({ exitCode: 0 });
          // Other commands than git's are not carried, and the key is nowhere inside.
          const shell = await sandbox.exec(`ssh -p ${sshd.port} git@git.example.org id`);
          expect(shell.exitCode).not.toBe(0);
          expect(shell.stdout).not.toContain('uid=');
          const [line] = sshd.clientKey.split('\n').slice(2);
          expect((await sandbox.exec(`grep -rlF -e '${line}' ~ /tmp /run /etc 2>/dev/null`)).stdout).toBe('');
          await sandbox.network.set({ allow: [to] });
          const bare = await sandbox.exec(
            `GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no -o BatchMode=yes' git clone -q ${url} ~/without`,
          );
          expect(bare.exitCode).not.toBe(0);
        },
      );

      it.skipIf(postgresMissing() !== undefined)(
        `psql reaches a database by its name${skippedSuffix(postgresMissing())}`,
        async () => {
          const postgres = await startPostgres();
          const address = new URL(await postgres.createDatabase());
          const directory = address.searchParams.get('host')!;
          const entrance = createTcp((socket) => {
            const database = connect(join(directory, '.s.PGSQL.5432'));
            socket.pipe(database).pipe(socket);
            for (const [one, other] of [
              [socket, database],
              [database, socket],
            ] as const)
              one.on('error', () => other.destroy());
          }).listen(0, '127.0.0.1');
          await once(entrance, 'listening');
          const { port } = entrance.address() as AddressInfo;
          served!.names.set('db.example.org', ['127.0.0.1']);
          try {
            await using sandbox = await Sandbox.create(
              { runtime, network: { allow: [`db.example.org:${port}`] } },
              access,
            );
            const psql = `psql -h db.example.org -p ${port} -U cay -d ${address.pathname.slice(1)} -Atc 'select 6 * 7'`;
            expect(await sandbox.exec(psql)).toMatchObject({ exitCode: 0, stdout: '42\n' });
            await sandbox.network.set('none');
            expect((await sandbox.exec(psql)).exitCode).not.toBe(0);
          } finally {
            entrance.close();
            await postgres.stop();
          }
        },
      );

      it('a WebSocket client speaks through terminated TLS, with a credential and without', async () => {
        const seen: string[] = [];
        const upstream = createSecureServer({
          SNICallback: (_name, done) => done(null, outside.contextFor('ws.example.org')),
        });
        echoWebSockets(upstream, ({ headers }) => void seen.push(String(headers.authorization)));
        upstream.listen(0, '127.0.0.1');
        await once(upstream, 'listening');
        const to = `ws.example.org:${(upstream.address() as AddressInfo).port}`;
        served!.names.set('ws.example.org', ['127.0.0.1']);
        const put: Put = { as: 'header', header: 'Authorization', value: 'Bearer {secret}', secret: 'NPM' };
        const script = `const s = new WebSocket('wss://${to}/chat'); s.onopen = () => s.send('hello'); s.onmessage = ({ data }) => { console.log(data); s.close(); }; s.onerror = () => process.exit(1);`;
        await using sandbox = await Sandbox.create(
          { runtime, network: { allow: [{ to, methods: ['GET'], put }] } },
          access,
        );
        const speak = () => sandbox.exec(['node', '--experimental-websocket', '-e', script]);
        expect(await speak()).toMatchObject({ exitCode: 0, stdout: 'echo hello\n' });
        await sandbox.network.set({ allow: [{ to, methods: ['GET'] }] });
        expect(await speak()).toMatchObject({ exitCode: 0, stdout: 'echo hello\n' });
        expect(seen).toEqual(['Bearer value-of-npm', 'undefined']);
        await sandbox.network.set('none');
        expect((await speak()).exitCode).not.toBe(0);
        upstream.closeAllConnections();
        upstream.close();
      });

      it('the policy of a template bounds its sandboxes, and what they ask for', async () => {
        const base = await Sandbox.create({ runtime, network: 'none' }, access);
        const snapshot = await base.snapshot({ name: 'bounded' });
        const saved = await fetch(`${access.url}/v1/templates/bounded`, {
          method: 'PUT',
          headers: { authorization: `Bearer ${access.apiKey}`, 'content-type': 'application/json' },
          body: JSON.stringify({ snapshot: snapshot.id, network: { allow: [at('pypi')] } }),
        });
        expect(saved.status).toBeLessThan(300);
        const status = (sandbox: Sandbox, name: string) =>
          sandbox.exec(`curl -sk -o /dev/null -w '%{http_code}' -m 10 https://${at(name)}/`);
        await using usual = await Sandbox.create({ runtime, template: 'bounded' }, access);
        expect((await status(usual, 'pypi')).stdout).toBe('401');
        expect((await status(usual, 'npm')).stdout).not.toBe('401');
        // What it asks for beyond the template is denied by the template's layer.
        await using wide = await Sandbox.create({ runtime, template: 'bounded', network: 'public' }, access);
        expect((await status(wide, 'pypi')).stdout).toBe('401');
        const beyond = await status(wide, 'npm');
        expect(beyond.stdout).not.toBe('401');
        // Where the guest listens, a port that is not allowed is refused before the server sees it.
        if (runtime === 'runc')
          expect(beyond.denied).toMatchObject([{ name: 'npm.example.org', reason: 'bounded' }]);
        await wide.network.set({ allow: [at('npm'), at('pypi')] });
        expect((await status(wide, 'npm')).stdout).not.toBe('401');
        await base.kill();
      });

      it('without a credential the same clients are turned away', async () => {
        const bare = Object.keys(VALUES).map((name) => at(name.toLowerCase()));
        await using sandbox = await Sandbox.create(
          { runtime, network: { allow: bare.map((to) => ({ to, methods: ['GET', 'POST'] })) } },
          access,
        );
        for (const [name, program] of Object.entries(programs()))
          expect((await sandbox.exec(program, name === 'apt' ? { user: 'root' } : {})).exitCode).not.toBe(0);
      });

      it('a denied name is explained at once to curl, pip, npm and git', async () => {
        await using sandbox = await Sandbox.create({ runtime, network: 'packages' }, access);
        const remedy = `cay net allow ${sandbox.id} denied.example.org:443`;
        const shown = {
          curl: 'curl -sS https://denied.example.org/',
          git: 'GIT_TERMINAL_PROMPT=0 git clone https://denied.example.org/a.git',
          // Of a denied index pip says nothing; the result of the command does, see below.
          pip: 'python3 -m pip install --disable-pip-version-check --no-input --retries 0 --break-system-packages https://denied.example.org/demo_pkg-1.0.0-py3-none-any.whl',
          npm: 'npm install --no-audit --no-fund --fetch-retries=0 --registry https://denied.example.org demo-pkg',
        };
        for (const [name, program] of Object.entries(shown)) {
          const { stdout, stderr } = await sandbox.exec(program);
          expect({ name, text: `${stdout}${stderr}`.replaceAll(/\s+/g, ' ') }).toEqual({
            name,
            text: expect.stringContaining(remedy) as string,
          });
        }
        const index = await sandbox.exec(
          'python3 -m pip install --no-input --retries 0 --break-system-packages --index-url https://denied.example.org/simple demo-pkg',
        );
        expect(index.denied).toMatchObject([{ name: 'denied.example.org', rule: 'denied.example.org:443' }]);
        const took = await sandbox.exec(`curl -so /dev/null -w '%{time_total}' https://denied.example.org/`);
        expect(Number(took.stdout)).toBeLessThan(1);
      });

      it('a policy with secrets holds in forks, clones, after a pause, a rollback and a restart', async () => {
        const put: Put = {
          as: 'header',
          header: 'Authorization',
          value: 'Bearer {secret}',
          secret: 'NPM',
          env: 'NPM_TOKEN',
        };
        const network = { allow: [{ to: at('npm'), put }] };
        const sandbox = await Sandbox.create({ runtime, network }, access);
        const placeholder = (await sandbox.exec('printenv NPM_TOKEN')).stdout;
        expect(placeholder).toMatch(/^cay-placeholder-[0-9a-f]{32}\n$/);
        const works = async (one: Sandbox) => {
          const { stdout, stderr } = await one.exec(`curl -sS https://${at('npm')}/demo-pkg`);
          expect(`${stdout}${stderr}`).toContain('"dist-tags"');
          expect((await one.exec('printenv NPM_TOKEN')).stdout).toBe(placeholder);
        };
        await works(sandbox);
        const before = await sandbox.snapshot({});
        const [child] = await sandbox.fork(1);
        await works(child!);
        await child!.kill();
        const clone = await Sandbox.create({ runtime, snapshot: before.id }, access);
        await works(clone);
        await clone.kill();
        await sandbox.pause();
        await works(sandbox);
        await sandbox.rollback(before.id);
        await works(sandbox);
        await served!.close();
        await open();
        const again = await Sandbox.connect(sandbox.id, access);
        await works(again);
        await again.stop();
        await again.start();
        await works(again);
        await again.kill();
      });

      it("headers of E2B's network rules are set by the server", async () => {
        const options = { apiKey: access.apiKey, apiUrl: access.url, sandboxUrl: access.url };
        const headers = { Authorization: 'Bearer value-of-npm' };
        const sandbox = await e2b.Sandbox.create('base', {
          ...options,
          network: {
            denyOut: [e2b.ALL_TRAFFIC],
            allowOut: [at('npm')],
            rules: { [at('npm')]: [{ transform: { headers } }] },
          },
        });
        const ask = () =>
          sandbox.commands.run(`curl -sS https://${at('npm')}/demo-pkg; env`, { timeoutMs: 60_000 });
        const { stdout } = await ask();
        expect(stdout).toContain('"dist-tags"');
        expect(stdout).not.toContain('value-of-npm');
        expect(JSON.stringify(await sandbox.getInfo())).not.toContain('value-of-npm');
        // Without the rule the header is gone.
        await sandbox.updateNetwork({ denyOut: [e2b.ALL_TRAFFIC], allowOut: [at('npm')] });
        expect((await ask()).stdout).not.toContain('"dist-tags"');
        await sandbox.kill();
      });
    },
  );
}
