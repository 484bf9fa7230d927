/**
 * Real clients in real sandboxes, each with the rule that it needs and without it, against servers on
 * loopback.
 */
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Sandbox, Secrets, type NetworkRule } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { echoWebSockets } from '../../server/src/egress/testing/servers.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { openPolicy } from '../../server/src/policy/policy.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { rustToolchain } from '../support/rust-toolchain.ts';
import { whyLater } from '../support/tier.ts';
import { openEgressServer, type EgressServer } from './egress-server.ts';
import { grpcMissing, openGrpc } from './grpc.ts';
import { openRegistries, type Registries } from './registries.ts';

const outside = openAuthority(newAuthority());
const rust = rustToolchain();
const ws = join(import.meta.dirname, '../../node_modules/ws');
const why = (reason: string | undefined) => (reason === undefined ? '' : ` (skipped: ${reason})`);
const missing = (path: string) => (existsSync(path) ? undefined : `this machine has no ${path}`);

/**
 * Whether the guest takes connections to every port of a name, so that a refusal is seen whatever the port.
 */
const seesEveryPort = (runtime: string) => runtime === 'runc';

export function clientsSuite(runtime: string): void {
  const reason = whyNoLocal() ?? (runtime === 'runc' ? undefined : whyLater());
  describe.skipIf(reason !== undefined)(
    `real clients on ${runtime}${why(reason)}`,
    { timeout: 180_000 },
    () => {
      const dir = mkdtempSync('/tmp/cay-clients-');
      chmodSync(dir, 0o711);
      let served: EgressServer;
      let registries: Registries;
      let access: { url: string; apiKey: string };
      let sandbox: Sandbox;

      beforeAll(async () => {
        registries = await openRegistries(dir, outside);
        const hostPaths = [ws, rust].flatMap((path) =>
          path === undefined ? [] : [{ path, writable: false }],
        );
        served = await openEgressServer({
          dir,
          runtime,
          names: ['crates', 'go', 'ws', 'grpc', 'db', 'git'].map((label) => `${label}.example.org`),
          trusted: [outside.certificate],
          policy: openPolicy({ hostPaths }),
        });
        ({ access } = served);
        const secrets = new Secrets(access);
        await secrets.set('CRATES', 'value-of-crates');
        await secrets.set('GO', 'value-of-go');
        sandbox = await Sandbox.create(
          {
            runtime,
            network: 'packages',
            mounts: [
              { type: 'host', source: ws, path: '/opt/ws', readOnly: true },
              ...(rust === undefined
                ? []
                : [{ type: 'host' as const, source: rust, path: '/opt/rust', readOnly: true }]),
            ],
          },
          access,
        );
      }, 120_000);
      afterAll(async () => {
        registries[Symbol.dispose]();
        await served.destroy();
      }, 120_000);

      const allow = (...rules: NetworkRule[]) => sandbox.network.set({ allow: rules });

      /**
       * Runs it in a sandbox that may not reach the name: it ends soon, and the result says what to allow.
       */
      async function denied(program: string, target: string): Promise<string> {
        await sandbox.network.set('packages');
        const began = performance.now();
        const { exitCode, stdout, stderr, denied: refused } = await sandbox.exec(program);
        expect(exitCode, stdout).not.toBe(0);
        expect(performance.now() - began).toBeLessThan(60_000);
        const [name, port] = target.split(':');
        if (port === '443' || seesEveryPort(runtime))
          expect(refused).toMatchObject([{ name, port: Number(port), rule: target }]);
        return `${stdout}${stderr}`.replaceAll(/\s+/g, ' ');
      }

      it.skipIf(rust === undefined)(
        `cargo builds with a crate of a registry${why(rust === undefined ? 'this machine has no Rust' : undefined)}`,
        async () => {
          const app = `rm -rf ~/app && mkdir -p ~/app/src && cd ~/app && printf '[package]\\nname = "app"\\nversion = "0.1.0"\\nedition = "2021"\\n[dependencies]\\ndemo-crate = { version = "1", registry = "tests" }\\n' > Cargo.toml && echo 'fn main() { demo_crate::hello() }' > src/main.rs`;
          const run = (host: string) =>
            `${app} && rm -rf ~/.cargo && PATH=/opt/rust/bin:$PATH CARGO_NET_RETRY=0 CARGO_REGISTRIES_TESTS_INDEX=sparse+https://${host}/ cargo run -q`;
          const to = `crates.example.org:${registries.port}`;
          await allow({
            to,
            methods: ['GET'],
            put: { as: 'header', header: 'Authorization', value: '{secret}', secret: 'CRATES' },
          });
          const { exitCode, stdout, stderr } = await sandbox.exec(run(to));
          expect({ exitCode, stdout, stderr }).toEqual({
            exitCode: 0,
            stdout: 'the package of cargo\n',
            stderr: '',
          });
          await allow({ to, methods: ['GET'] });
          expect((await sandbox.exec(run(to))).stderr).toContain('authenticated registries require');
          expect(await denied(run('crates.example.org'), 'crates.example.org:443')).toContain(
            `cay net allow ${sandbox.id} crates.example.org:443`,
          );
        },
      );

      const go = '/usr/local/go/bin/go';
      it.skipIf(missing(go) !== undefined)(
        `go downloads a module from a proxy${why(missing(go))}`,
        async () => {
          const run = (host: string) =>
            `rm -rf ~/module && mkdir ~/module && cd ~/module && export GOPROXY=https://${host} GOSUMDB=off GOFLAGS=-modcacherw GOTOOLCHAIN=local GOMODCACHE=~/module/cache && ${go} mod init example.org/app 2>/dev/null && ${go} get code.example.org/demo@v1.0.0 && cat ~/module/cache/code.example.org/demo@v1.0.0/hello.txt`;
          const to = `go.example.org:${registries.port}`;
          await allow({ to, methods: ['GET'], put: { as: 'basic', username: 'robot', secret: 'GO' } });
          expect(await sandbox.exec(run(to))).toMatchObject({ exitCode: 0, stdout: 'the package of go\n' });
          await allow({ to, methods: ['GET'] });
          expect((await sandbox.exec(run(to))).stderr).toContain('401');
          expect(await denied(run('go.example.org'), 'go.example.org:443')).toContain(
            `cay net allow ${sandbox.id} go.example.org:443`,
          );
        },
      );

      it('a WebSocket client of the package "ws" speaks, and is told why it may not', async () => {
        const http = createServer();
        echoWebSockets(http, () => {});
        http.listen(0, '127.0.0.1');
        await once(http, 'listening');
        const to = `ws.example.org:${(http.address() as AddressInfo).port}`;
        const script = (url: string) =>
          `const W = require('/opt/ws'); const s = new W('${url}'); s.on('open', () => s.send('hello')); s.on('message', (data) => { console.log(data.toString()); s.close(); }); s.on('unexpected-response', (_, answer) => { console.log(answer.statusCode, answer.statusMessage); process.exit(1); }); s.on('error', (error) => { console.log(error.message); process.exit(1); });`;
        const speak = (url: string) => `node -e "${script(url)}"`;
        await allow(to);
        expect(await sandbox.exec(speak(`ws://${to}/chat`))).toMatchObject({
          exitCode: 0,
          stdout: 'echo hello\n',
        });
        // The status line has what to allow.
        expect(await denied(speak('ws://ws.example.org/chat'), 'ws.example.org:80')).toContain('403');
        expect(await denied(speak('wss://ws.example.org/chat'), 'ws.example.org:443')).toContain('403');
        http.closeAllConnections();
        http.close();
      });

      it.skipIf(grpcMissing() !== undefined)(
        `gRPC calls and streams, in the clear and by TLS${why(grpcMissing())}`,
        async () => {
          await using grpc = await openGrpc(outside);
          const call = (target: string, channel: string) =>
            `/usr/bin/python3 -c "
import grpc
channel = ${channel}
one = channel.unary_unary('/demo.Echo/Say')(b'hello', timeout=20)
many = list(channel.unary_stream('/demo.Echo/Repeat')(b'again', timeout=20))
print(one.decode(), len(many), many[-1].decode())
" ${target} 2>&1`;
          const clear = (target: string) => call(target, `grpc.insecure_channel('${target}')`);
          const secure = (target: string) =>
            call(target, `grpc.secure_channel('${target}', grpc.ssl_channel_credentials())`);
          const said = 'echo hello 100 99 again\n';
          await allow(`grpc.example.org:${grpc.port}`);
          expect(await sandbox.exec(clear(`grpc.example.org:${grpc.port}`))).toMatchObject({ stdout: said });
          const to = `grpc.example.org:${grpc.securePort}`;
          await allow({ to, methods: ['POST'], paths: ['/demo.Echo'] });
          expect(await sandbox.exec(secure(to))).toMatchObject({ stdout: said });
          await allow({ to, methods: ['POST'], paths: ['/demo.Echo/Say'] });
          const part = await sandbox.exec(secure(to));
          expect(part.exitCode).not.toBe(0);
          expect(part.stdout).toContain('403');
          expect(part.denied).toMatchObject([{ name: 'grpc.example.org', reason: 'http_condition' }]);
          expect(await denied(secure('grpc.example.org:443'), 'grpc.example.org:443')).toContain('403');
        },
      );

      it('clients of other protocols end soon, and the command says what to allow', async () => {
        await denied(`psql -h db.example.org -U cay -d demo -c 'select 1'`, 'db.example.org:5432');
        await denied('git clone ssh://git@git.example.org/demo.git ~/no', 'git.example.org:22');
        await denied('git clone git://git.example.org/demo.git ~/no', 'git.example.org:9418');
      });
    },
  );
}
