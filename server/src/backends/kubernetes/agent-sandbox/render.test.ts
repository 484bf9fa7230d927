import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { agentSandboxDeclarations } from './render.ts';

/** Rendering asks the cluster for its RuntimeClasses alone; this one has none. */
let server: Server;
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'cay-render-'));
  server = createServer((request, response) => {
    response.setHeader('Content-Type', 'application/json');
    response.end(
      JSON.stringify({ kind: 'List', metadata: { resourceVersion: '1' }, items: [], path: request.url }),
    );
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const cluster = { server: address, 'insecure-skip-tls-verify': true };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [{ name: 'c', cluster }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u', namespace: 'here' } }],
    'current-context': 'x',
  };
  await writeFile(join(dir, 'config'), JSON.stringify(config));
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true });
});

const declared = (warmPool: number) =>
  agentSandboxDeclarations({
    kubeconfig: join(dir, 'config'),
    namespace: 'here',
    installation: 'inst',
    guestImage: 'guest:1',
    baseImage: 'base:1',
    warmPool,
  });
const account = { name: 'cay', namespace: 'cay' };

describe('what agent-sandbox declares', () => {
  it('names every kind that it makes, those of the warm pool included', () => {
    expect(declared(0).ownedKinds).not.toContain('SandboxWarmPool');
    expect(declared(2).ownedKinds).toEqual(
      expect.arrayContaining(['Sandbox', 'SandboxClaim', 'SandboxTemplate', 'SandboxWarmPool']),
    );
  });

  it('prints the objects of the warm pool with the others', async () => {
    const kinds = async (warmPool: number) =>
      (await declared(warmPool).render({ account })).map(({ kind }) => kind);
    expect(await kinds(0)).not.toContain('SandboxWarmPool');
    const objects = await declared(2).render({ account });
    const [holder, template, pool] = objects.slice(-3);
    expect([holder, template, pool].map((object) => object?.kind)).toEqual([
      'Sandbox',
      'SandboxTemplate',
      'SandboxWarmPool',
    ]);
    expect(pool).toMatchObject({
      metadata: { namespace: 'here' },
      spec: { replicas: 2, sandboxTemplateRef: { name: template!.metadata.name } },
    });
  });

  it('prints a claim for a sandbox that the pool has, and a Sandbox for any other', async () => {
    const id = newId('sbx');
    const one = async (warmPool: number, spec: object) =>
      (await declared(warmPool).render({ account, sandbox: { id, spec } })).map(({ kind }) => kind);
    expect(await one(0, {})).toEqual(['Sandbox']);
    expect(await one(2, {})).toEqual(['SandboxClaim']);
    expect(await one(2, { template: 'other:1' })).toEqual(['Sandbox']);
  });
});
