/**
 * E2B's network options through its own client: real programs, and targets on loopback that stand for the
 * internet.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { ALL_TRAFFIC, Sandbox, type SandboxOpts } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  testStartedEgress,
  type TestStartedEgress,
} from '../../server/src/egress/testing/test-started-egress.ts';
import { newAuthority, openAuthority } from '../../server/src/egress/tls/authority.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { openE2bPlatform, type E2bPlatform } from './e2b-platform.ts';

const why = whyNoLocal();
const outside = openAuthority(newAuthority());

describe.skipIf(why !== undefined)(`E2B's network options on runc${why ? ` (skipped: ${why})` : ''}`, () => {
  let egress: TestStartedEgress;
  let platform: E2bPlatform;
  const servers: { close(): void }[] = [];
  const [web, other, api] = ['web.example.org', 'other.example.org', 'api.example.org'];
  let port: number;
  let secure: number;

  beforeAll(async () => {
    egress = await testStartedEgress({ trusted: [outside.certificate], maximum: 'public' });
    for (const name of [web, other, api]) egress.names.set(name, ['127.0.0.1']);
    const plain = createServer((request, response) => response.end(`plain ${request.headers.host}`));
    const tls = createSecureServer(
      { SNICallback: (_name, done) => done(null, outside.contextFor(api)) },
      (request, response) => response.end(`key ${String(request.headers['x-key'])}`),
    );
    for (const server of [plain, tls]) {
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      servers.push(server);
    }
    port = (plain.address() as AddressInfo).port;
    secure = (tls.address() as AddressInfo).port;
    platform = await openE2bPlatform('runc', { egress });
  }, 120_000);
  afterAll(async () => {
    for (const server of servers) server.close();
    await platform?.[Symbol.asyncDispose]();
    egress?.[Symbol.dispose]();
  }, 60_000);

  const create = (options: SandboxOpts) => Sandbox.create({ ...platform.access, ...options });
  /** Which of the two names a program in the sandbox reaches. */
  async function reached(sandbox: Sandbox): Promise<string[]> {
    const found = [];
    for (const name of [web, other]) {
      const run = sandbox.commands.run(`curl -sSf -m 10 http://${name}:${port}/`);
      if ((await run.catch(() => undefined))?.stdout.startsWith('plain')) found.push(name);
    }
    return found;
  }

  it('reach everything unless something is said', { timeout: 60_000 }, async () => {
    const sandbox = await create({});
    expect(await reached(sandbox)).toEqual([web, other]);
    await sandbox.kill();
  });

  it('allowInternetAccess: false reaches nothing', { timeout: 60_000 }, async () => {
    const sandbox = await create({ allowInternetAccess: false });
    expect(await reached(sandbox)).toEqual([]);
    expect((await sandbox.getInfo()).allowInternetAccess).toBe(false);
    await sandbox.kill();
  });

  it('allowOut wins over denyOut', { timeout: 60_000 }, async () => {
    const sandbox = await create({ network: { allowOut: [`${web}:${port}`], denyOut: [ALL_TRAFFIC] } });
    expect(await reached(sandbox)).toEqual([web]);
    await sandbox.kill();
  });

  it('denyOut denies names and leaves the rest', { timeout: 60_000 }, async () => {
    const sandbox = await create({ network: { denyOut: [`${other}:${port}`] } });
    expect(await reached(sandbox)).toEqual([web]);
    await sandbox.kill();
  });

  it('updateNetwork changes it while it runs, and a restart keeps it', { timeout: 120_000 }, async () => {
    const sandbox = await create({ network: { denyOut: [ALL_TRAFFIC] } });
    expect(await reached(sandbox)).toEqual([]);
    await sandbox.updateNetwork({ allowOut: [`${other}:${port}`], denyOut: [ALL_TRAFFIC] });
    expect(await reached(sandbox)).toEqual([other]);
    await sandbox.updateNetwork({ allowOut: [], denyOut: [ALL_TRAFFIC] });
    expect(await reached(sandbox)).toEqual([]);
    await sandbox.updateNetwork({});
    expect(await reached(sandbox)).toEqual([web, other]);
    await sandbox.kill();
  });

  it('rules put headers on requests, which programs never see', { timeout: 60_000 }, async () => {
    const rules = { [`${api}:${secure}`]: [{ transform: { headers: { 'X-Key': 'from outside' } } }] };
    const sandbox = await create({
      network: { allowOut: [`${api}:${secure}`], denyOut: [ALL_TRAFFIC], rules },
    });
    const asked = await sandbox.commands.run(
      `curl -sS https://${api}:${secure}/ && env && cat /proc/self/environ`,
    );
    expect(asked.stdout).toContain('key from outside');
    expect(asked.stdout.replace('key from outside', '')).not.toContain('from outside');
    expect(JSON.stringify(await sandbox.getInfo())).not.toContain('from outside');
    await sandbox.kill();
  });
});
