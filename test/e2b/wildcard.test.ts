/** `E2B_DOMAIN` alone: everything by hosts below one domain, over TLS. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { memoryBackend } from '../../server/src/backends/memory/memory.ts';
import type { Program } from '../../server/src/backends/memory/program.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { ownCertificate } from '../support/own-certificate.ts';

const directory = mkdtempSync(join(tmpdir(), 'cay-wildcard-'));
const [keyFile, certFile] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
let server: RunningServer;

/** What the client runs through its shell here: an application that says yes to everybody. */
const bash: Program = ({ listen, signal }) => {
  listen(3000, async (incoming) => {
    await incoming.write(Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes'));
    await incoming.end();
  });
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(0), { once: true }));
};

beforeAll(async () => {
  ownCertificate({ keyFile, certFile }, ['sbx.localhost', '*.sbx.localhost']);
  server = await serve({
    backend: memoryBackend({ commands: { bash } }),
    dataDir: join(directory, 'data'),
    port: 0,
    tls: { keyFile, certFile },
    previewDomains: ['sbx.localhost'],
    log: serverLog('silent'),
  });
});
afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

it('serves a client that knows nothing but the domain', async () => {
  const { port } = new URL(server.url);
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [fileURLToPath(new URL('./wildcard-client.ts', import.meta.url))],
    {
      env: {
        PATH: process.env['PATH'],
        NODE_EXTRA_CA_CERTS: certFile,
        E2B_DOMAIN: `sbx.localhost:${port}`,
        E2B_API_KEY: server.adminKey,
      },
    },
  );
  const told = JSON.parse(stdout) as Record<string, unknown>;
  expect(told).toEqual({
    host: `3000-${told['id'] as string}.sbx.localhost:${port}`,
    id: expect.stringMatching(/^[a-z0-9]{20}$/) as string,
    read: 'by host',
    downloaded: 'by host',
    unsigned: 401,
    application: 200,
    killed: true,
    running: false,
  });
});
