/**
 * Real clients in containers of Docker, whose image has this machine's own programs: each with the rule and
 * the credential that it needs, and without. Cargo is left out: with what it needs to compile the image would
 * be a gigabyte larger.
 */
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect, createServer as createTcp, type AddressInfo, type Server } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { Sandbox, Secrets, type NetworkRule, type Put } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dockerBackend } from '../../server/src/backends/docker/docker.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { echoWebSockets } from '../../server/src/egress/testing/servers.ts';
import {
  testStartedEgress,
  type TestStartedEgress,
} from '../../server/src/egress/testing/test-started-egress.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';
import { postgresMissing, startPostgres } from '../support/postgres.ts';
import { sshdMissing, startSshd } from '../support/sshd.ts';
import { whyLater } from '../support/tier.ts';
import { clientPrograms } from './client-programs.ts';
import { grpcMissing, openGrpc } from './grpc.ts';
import { CREDENTIALS, makeRepository, openRegistries, type Registries } from './registries.ts';

const outside = openAuthority(newAuthority());
const POSTGRES = '/usr/lib/postgresql';
const postgres = existsSync(POSTGRES)
  ? readdirSync(POSTGRES).map((version) => `${POSTGRES}/${version}/bin/psql`)
  : [];
const GO = '/usr/local/go';
const APT =
  'apt-get apt-config apt-key dpkg dpkg-deb dpkg-query dpkg-split gpgv xz diff cmp awk base64 basename comm dirname';
const EXTRAS = {
  programs: [
    ...`curl git ssh node npm ${APT}`.split(' ').map((name) => `/usr/bin/${name}`),
    ...['ldconfig', 'start-stop-daemon'].map((name) => `/usr/sbin/${name}`),
    ...postgres,
  ],
  trees: [
    ...['git-core', 'node_modules', 'apt', 'python3/dist-packages'].map((name) => `/usr/lib/${name}`),
    ...['/usr/share/dpkg', '/usr/share/git-core', '/etc/alternatives', GO],
  ],
};

const suffix = (reason: string | undefined) => (reason === undefined ? '' : ` (skipped: ${reason})`);
const why = whyNoDockerd() ?? whyLater();

describe.skipIf(why !== undefined)(`real clients on Docker${suffix(why)}`, { timeout: 180_000 }, () => {
  const dir = mkdtempSync('/tmp/cay-clients-docker-');
  chmodSync(dir, 0o711);
  const secrets = { PYPI: 'pypi', NPM: 'npm', GIT: 'git', DEB: 'deb', GO: 'go' };
  let engine: Dockerd;
  let egress: TestStartedEgress;
  let server: RunningServer;
  let registries: Registries;
  let access: { url: string; apiKey: string };
  let sandbox: Sandbox;

  beforeAll(async () => {
    registries = await openRegistries(dir, outside);
    engine = await startDockerd();
    await engine.importBaseImage('base', EXTRAS);
    egress = await testStartedEgress({ trusted: [outside.certificate] });
    for (const name of [...Object.keys(CREDENTIALS), 'db.example.org', 'ws.example.org', 'grpc.example.org'])
      egress.names.set(name, ['127.0.0.1']);
    const backend = dockerBackend({
      host: engine.host,
      guestPath: guestBinary(),
      baseImage: 'base',
      egress: egress.engine,
    });
    const log = serverLog('silent');
    server = await serve({ backend, egress, dataDir: join(dir, 'control'), port: 0, log });
    access = { url: server.url, apiKey: server.adminKey! };
    const store = new Secrets(access);
    for (const [name, value] of Object.entries(secrets)) await store.set(name, `value-of-${value}`);
    const limits = { diskBytes: null, memoryBytes: 1024 ** 3 };
    sandbox = await Sandbox.create({ limits, network: 'packages' }, access);
  }, 180_000);
  afterAll(async () => {
    await sandbox?.kill();
    await server?.close();
    egress?.[Symbol.dispose]();
    await engine?.stop();
    registries?.[Symbol.dispose]();
    rmSync(dir, { recursive: true, force: true });
  }, 120_000);

  const at = (name: string) => `${name}.example.org:${registries.port}`;
  const allow = (...rules: NetworkRule[]) => sandbox.network.set({ allow: rules });
  const run = (program: string, user?: string) => sandbox.exec(program, user === undefined ? {} : { user });
  const userOf = (name: string) => (name === 'apt' ? 'root' : undefined);

  async function listening(made: Server): Promise<number> {
    made.listen(0, '127.0.0.1');
    await once(made, 'listening');
    return (made.address() as AddressInfo).port;
  }

  it('curl, pip, npm, apt and git reach registries with credentials, and not without', async () => {
    const header = { as: 'header', header: 'Authorization' } as const;
    const puts: Record<string, Put> = {
      pypi: { as: 'basic', username: 'robot', secret: 'PYPI' },
      npm: { ...header, value: 'Bearer {secret}', secret: 'NPM' },
      git: { as: 'git', secret: 'GIT' },
      deb: { as: 'basic', username: 'robot', secret: 'DEB' },
    };
    const names = Object.keys(puts);
    await allow(...names.map((name) => ({ to: at(name), put: puts[name]! })));
    await run('mkdir -p /etc/apt/apt.conf.d /etc/apt/preferences.d /var/log/apt /var/lib/dpkg', 'root');
    const programs = Object.entries(clientPrograms(at));
    for (const [name, program] of programs) {
      const { exitCode, stdout, stderr } = await run(program, userOf(name));
      const expected = name === 'git' ? 'the repository of git\n' : `the package of ${name}\n`;
      expect({ exitCode, stdout, stderr: exitCode === 0 ? '' : stderr }).toEqual({
        exitCode: 0,
        stdout: expected,
        stderr: '',
      });
    }
    const search = `cat /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -ac 'value[-]of-'; grep -rl 'value[-]of-' ~ /tmp /run /etc 2>/dev/null`;
    expect((await run(search)).stdout.trim()).toBe('0');
    await allow(...names.map((name) => ({ to: at(name), methods: ['GET', 'POST'] })));
    for (const [name, program] of programs) expect((await run(program, userOf(name))).exitCode).not.toBe(0);
  });

  it('a denied name is explained to curl, git, pip and npm', async () => {
    await sandbox.network.set('packages');
    const shown = {
      curl: 'curl -sS https://denied.example.org/',
      git: 'GIT_TERMINAL_PROMPT=0 git clone https://denied.example.org/a.git ~/no',
      pip: 'python3 -m pip install --disable-pip-version-check --no-input --retries 0 --break-system-packages https://denied.example.org/demo_pkg-1.0.0-py3-none-any.whl',
      npm: 'npm install --no-audit --no-fund --fetch-retries=0 --registry https://denied.example.org demo-pkg',
    };
    for (const [name, program] of Object.entries(shown)) {
      const { stdout, stderr, denied } = await run(program);
      expect({ name, text: `${stdout}${stderr}`.replaceAll(/\s+/g, ' ') }).toEqual({
        name,
        text: expect.stringContaining(`cay net allow ${sandbox.id} denied.example.org:443`) as string,
      });
      expect(denied).toMatchObject([{ name: 'denied.example.org', rule: 'denied.example.org:443' }]);
    }
  });

  it.skipIf(!existsSync(GO))(
    `go downloads a module${suffix(existsSync(GO) ? undefined : `this machine has no ${GO}`)}`,
    async () => {
      const to = at('go');
      const program = `export PATH=${GO}/bin:$PATH HOME=/tmp/go GOPROXY=https://${to} GOSUMDB=off GOFLAGS=-modcacherw GOTOOLCHAIN=local && rm -rf /tmp/go && mkdir -p /tmp/go/app && cd /tmp/go/app && go mod init example.org/app 2>/dev/null && go get code.example.org/demo@v1.0.0 && cat /tmp/go/go/pkg/mod/code.example.org/demo@v1.0.0/hello.txt`;
      await allow({ to, methods: ['GET'], put: { as: 'basic', username: 'robot', secret: 'GO' } });
      expect(await run(program)).toMatchObject({ exitCode: 0, stdout: 'the package of go\n' });
      await allow({ to, methods: ['GET'] });
      expect((await run(program)).stderr).toContain('401');
    },
  );

  it.skipIf(sshdMissing() !== undefined)(
    `git clones over SSH with a key that it does not have${suffix(sshdMissing())}`,
    async () => {
      const place = join(dir, 'ssh');
      mkdirSync(place);
      using sshd = await startSshd(place);
      const to = `git.example.org:${sshd.port}`;
      await new Secrets(access).set('DEPLOY', sshd.clientKey);
      const knownHosts = [sshd.hostKey.split(' ').slice(0, 2).join(' ')];
      const put: Put = { as: 'ssh', secret: 'DEPLOY', username: userInfo().username, knownHosts };
      const url = `ssh://git@${to}${join(makeRepository(place), 'demo.git')}`;
      const clone = `rm -rf ~/over-ssh && git clone -q ${url} ~/over-ssh && cat ~/over-ssh/hello.txt`;
      await allow({ to, put });
      expect(await run(clone)).toMatchObject({ exitCode: 0, stdout: 'the repository of git\n' });
      await allow(to);
      const bare = `GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=no -o BatchMode=yes'`;
      expect((await run(`export ${bare}; ${clone}`)).exitCode).not.toBe(0);
    },
  );

  const noDatabase = postgresMissing() ?? (postgres.length > 0 ? undefined : 'there is no psql');
  it.skipIf(noDatabase !== undefined)(
    `psql reaches a database by its name${suffix(noDatabase)}`,
    async () => {
      const running = await startPostgres();
      const address = new URL(await running.createDatabase());
      const directory = address.searchParams.get('host')!;
      const entrance = createTcp((socket) => {
        const database = connect(join(directory, '.s.PGSQL.5432'));
        socket.on('error', () => database.destroy());
        database.on('error', () => socket.destroy());
        socket.pipe(database).pipe(socket);
      });
      const port = await listening(entrance);
      try {
        const psql = `${postgres[0]} -h db.example.org -p ${port} -U cay -d ${address.pathname.slice(1)} -Atc 'select 6 * 7'`;
        await allow(`db.example.org:${port}`);
        expect(await run(psql)).toMatchObject({ exitCode: 0, stdout: '42\n' });
        await sandbox.network.set('none');
        expect((await run(psql)).exitCode).not.toBe(0);
      } finally {
        entrance.close();
        await running.stop();
      }
    },
  );

  it('a WebSocket client speaks', async () => {
    const http = createServer();
    echoWebSockets(http, () => {});
    const to = `ws.example.org:${await listening(http)}`;
    const script = `const s = new WebSocket('ws://${to}/chat'); s.onopen = () => s.send('hello'); s.onmessage = ({ data }) => { console.log(data); s.close(); }; s.onerror = () => process.exit(1);`;
    const speak = () => sandbox.exec(['node', '--experimental-websocket', '-e', script]);
    await allow(to);
    expect(await speak()).toMatchObject({ exitCode: 0, stdout: 'echo hello\n' });
    await sandbox.network.set('none');
    expect((await speak()).exitCode).not.toBe(0);
    http.closeAllConnections();
    http.close();
  });

  it.skipIf(grpcMissing() !== undefined)(`gRPC calls by TLS${suffix(grpcMissing())}`, async () => {
    await using grpc = await openGrpc(outside);
    const to = `grpc.example.org:${grpc.securePort}`;
    const call = `python3 -c "
import grpc
channel = grpc.secure_channel('${to}', grpc.ssl_channel_credentials())
print(channel.unary_unary('/demo.Echo/Say')(b'hello', timeout=20).decode())
print(len(list(channel.unary_stream('/demo.Echo/Repeat')(b'again', timeout=20))))
" 2>&1`;
    await allow({ to, methods: ['POST'], paths: ['/demo.Echo'] });
    expect(await run(call)).toMatchObject({ exitCode: 0, stdout: 'echo hello\n100\n' });
    await allow({ to, methods: ['POST'], paths: ['/demo.Echo/Say'] });
    const part = await run(call);
    expect(part).toMatchObject({ denied: [{ name: 'grpc.example.org', reason: 'http_condition' }] });
    expect(part.stdout).toContain('403');
  });
});
