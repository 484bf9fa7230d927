/**
 * The conformance suite of the Model Context Protocol against a real server, for both revisions:
 *
 *     npm run test:mcp
 *
 * The suite is fetched by npx. Its scenarios send no key, so a proxy adds one. The baselines name the
 * scenarios that do not apply; a scenario that is named and passes is a failure too.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { killServing, startServing } from '../support/serving.ts';

const SUITE = '@modelcontextprotocol/conformance@0.2.0-alpha.12';
const REVISIONS = ['2026-07-28', '2025-11-25'];

const dataDir = await mkdtemp('/tmp/cay-mcp-conformance-');
const server = await startServing({
  ...process.env,
  CAY_DATA: dataDir,
  CAY_LISTEN: '127.0.0.1:0',
  CAY_BACKEND: 'memory',
});
const { hostname, port } = new URL(server.url);
const proxy = createServer((incoming, answer) => {
  const headers = { ...incoming.headers, authorization: `Bearer ${server.key}` };
  const { url: path, method } = incoming;
  const outgoing = request({ hostname, port, path, method, headers }, (from) => {
    answer.writeHead(from.statusCode ?? 502, from.headers);
    from.pipe(answer);
  });
  outgoing.on('error', () => answer.destroy());
  answer.on('close', () => outgoing.destroy());
  incoming.pipe(outgoing);
});
await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/mcp`;
try {
  for (const revision of REVISIONS) {
    const baseline = join(import.meta.dirname, `baseline-${revision}.yml`);
    const args = ['--yes', SUITE, 'server', '--url', url, '--requirements', revision];
    const suite = spawn('npx', [...args, '--expected-failures', baseline], { stdio: 'inherit' });
    const code = await new Promise<number | null>((resolve) => suite.on('exit', resolve));
    if (code !== 0) process.exitCode = 1;
  }
} finally {
  proxy.close();
  proxy.closeAllConnections();
  await killServing(server, 'SIGTERM');
  await rm(dataDir, { recursive: true, force: true });
}
