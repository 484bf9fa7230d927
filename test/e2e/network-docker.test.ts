/** Named networks and published ports on Docker: the server connects containers that have no network. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dockerBackend } from '../../server/src/backends/docker/docker.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import {
  testStartedEgress,
  type TestStartedEgress,
} from '../../server/src/egress/testing/test-started-egress.ts';
import { guestBinary } from '../../server/src/guest/guest-binary.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { askByUdp, UDP_ECHO } from '../support/udp.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';

const why = whyNoDockerd();

describe.skipIf(why !== undefined)(`the network on Docker${why ? ` (skipped: ${why})` : ''}`, () => {
  const dir = mkdtempSync('/tmp/cay-net-docker-');
  chmodSync(dir, 0o711);
  let engine: Dockerd;
  let egress: TestStartedEgress;
  let server: RunningServer;
  let access: { url: string; apiKey: string };

  beforeAll(async () => {
    engine = await startDockerd();
    await engine.importBaseImage();
    egress = await testStartedEgress();
    const backend = dockerBackend({
      host: engine.host,
      guestPath: guestBinary(),
      baseImage: 'base',
      egress: egress.engine,
    });
    const log = serverLog('silent');
    server = await serve({ backend, egress, dataDir: join(dir, 'control'), port: 0, log });
    access = { url: server.url, apiKey: server.adminKey! };
  }, 120_000);
  afterAll(async () => {
    for await (const sandbox of Sandbox.list(access)) await sandbox.kill();
    await server?.close();
    egress?.[Symbol.dispose]();
    await engine?.stop();
    rmSync(dir, { recursive: true, force: true });
  }, 120_000);

  const limits = { diskBytes: null, memoryBytes: 512 * 1024 * 1024 };
  const cmd = ['python3', '-m', 'http.server', '8000'];
  const ask = 'import urllib.request as r; print(r.urlopen("http://db:8000/", timeout=5).status, end="")';

  it('leads to ports of containers by name and by port of the machine', { timeout: 120_000 }, async () => {
    const network = 'none' as const;
    const one = { limits, network, networks: ['team'] };
    const db = await Sandbox.create({ ...one, name: 'db', publish: [{ port: 8000 }], cmd }, access);
    const app = await Sandbox.create({ ...one, name: 'app' }, access);
    const alone = await Sandbox.create({ limits, network, name: 'alone' }, access);
    const get = async (from: Sandbox) => (await from.exec(['python3', '-c', ask])).stdout;
    await expect.poll(() => get(app), { timeout: 30_000 }).toBe('200');
    expect(await get(alone)).toBe('');
    const { published } = await db.ports();
    const visit = async () => (await fetch(`http://127.0.0.1:${published[0]!.hostPort}/`)).status;
    await expect.poll(() => visit().catch(() => 0), { timeout: 10_000 }).toBe(200);
    await app.update({ networks: [] });
    expect(await get(app)).toBe('');
  });

  it(
    'leads datagrams to containers, and out of them where a rule allows it',
    { timeout: 120_000 },
    async () => {
      const outside = createSocket('udp4');
      outside.on('message', (text, { port, address }) =>
        outside.send(`from outside ${text.toString()}`, port, address),
      );
      outside.bind(0, '127.0.0.1');
      await once(outside, 'listening');
      const { port } = outside.address();
      egress.names.set('udp.example.org', ['127.0.0.1']);
      const network = { allow: [`udp:udp.example.org:${port}`] };
      const sandbox = await Sandbox.create(
        { limits, network, publish: [{ port: 5353, protocol: 'udp' }], cmd: UDP_ECHO(5353) },
        access,
      );
      const [published] = (await sandbox.ports()).published;
      expect(await askByUdp(published!.hostPort, 'one')).toBe('echo one');
      const send = `import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(("udp.example.org", ${port})); s.send(b"hello"); print(s.recv(99).decode(), end="")`;
      expect(await sandbox.exec(['python3', '-c', send])).toMatchObject({ stdout: 'from outside hello' });
      expect((await sandbox.network.attempts())[0]).toMatchObject({ protocol: 'udp', verdict: 'allowed' });
      await sandbox.network.set('public');
      const refused = await sandbox.exec(['python3', '-c', send]);
      expect(refused.exitCode).not.toBe(0);
      expect(refused.stderr).toContain('ConnectionRefusedError');
      outside.close();
      await sandbox.kill();
    },
  );
});
