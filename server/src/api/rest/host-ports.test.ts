import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openPolicy } from '../../policy/policy.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';
import { freePort } from '../../../../test/support/free-ports.ts';

let test: TestServer;
const servers: { close(): void }[] = [];

beforeAll(async () => {
  test = await startTestServer({ quota: { defaults: { publishedPorts: 4 }, maxima: {} } });
});
afterAll(async () => {
  for (const server of servers) server.close();
  await test[Symbol.asyncDispose]();
});

async function sandbox(input: object = {}, key?: string) {
  const made = await test.create(input, key);
  await test.call('POST', `/v1/sandboxes/${made.id}/commands`, {
    body: { argv: ['http-server', '3000'] },
    ...(key && { key }),
  });
  return made;
}

const visit = async (port: number) => {
  const answer = await fetch(`http://127.0.0.1:${port}/x`, { headers: { connection: 'close' } });
  return ((await answer.json()) as { url: string }).url;
};
const ports = async (id: string) => (await test.call('GET', `/v1/sandboxes/${id}/ports`)).json.published;
const refused = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', () => resolve(true));
  });

describe('a published port', () => {
  it('leads to the port inside from the create on, until the sandbox is removed', async () => {
    const hostPort = await freePort();
    const { id } = await sandbox({ publish: [{ hostPort, port: 3000 }] });
    expect(await ports(id)).toEqual([{ protocol: 'tcp', hostPort, port: 3000, address: '127.0.0.1' }]);
    expect(await visit(hostPort)).toBe('/x');
    await test.call('DELETE', `/v1/sandboxes/${id}`);
    await expect.poll(() => refused(hostPort)).toBe(true);
  });

  it('is added and taken away later, and a free one is found', async () => {
    const { id } = await sandbox();
    const { status, json } = await test.call('POST', `/v1/sandboxes/${id}/published`, {
      body: { port: 3000 },
    });
    expect(status).toBe(201);
    expect(json.hostPort).toBeGreaterThan(1023);
    expect(await visit(json.hostPort)).toBe('/x');
    const path = `/v1/sandboxes/${id}/published/${json.hostPort}`;
    expect((await test.call('DELETE', path, { key: test.bob })).status).toBe(404);
    expect((await test.call('DELETE', path)).status).toBe(204);
    expect(await refused(json.hostPort)).toBe(true);
    expect((await test.call('DELETE', path)).status).toBe(404);
    expect(await ports(id)).toEqual([]);
  });

  it('wakes a paused sandbox', async () => {
    const hostPort = await freePort();
    const { id } = await sandbox({ publish: [{ hostPort, port: 3000 }] });
    await test.call('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
    expect((await test.call('GET', `/v1/sandboxes/${id}`)).json.state).toBe('paused');
    expect(await visit(hostPort)).toBe('/x');
    expect((await test.call('GET', `/v1/sandboxes/${id}`)).json.state).toBe('active');
    await test.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('is refused where it is taken, and nothing is left of that create', async () => {
    const hostPort = await freePort();
    const first = await sandbox({ publish: [{ hostPort, port: 3000 }] });
    const other = createServer().listen(0, '127.0.0.1');
    servers.push(other);
    await once(other, 'listening');
    const foreign = (other.address() as AddressInfo).port;
    for (const [taken, words] of [
      [hostPort, 'leads to a sandbox already'],
      [foreign, 'another program of the machine uses it'],
    ] as const) {
      const body = { name: 'conflict', publish: [{ port: 80 }, { hostPort: taken, port: 3000 }] };
      const { status, json } = await test.call('POST', '/v1/sandboxes', { body, key: test.bob });
      expect([status, json.error.code]).toEqual([409, 'conflict']);
      expect(json.error.message).toContain(words);
    }
    expect((await test.call('GET', '/v1/sandboxes/conflict', { key: test.bob })).status).toBe(404);
    const { json } = await test.call('GET', '/v1/projects/bob/usage', { key: test.admin });
    expect(json.publishedPorts?.used ?? 0).toBe(0);
    expect(await visit(hostPort)).toBe('/x');
    await test.call('DELETE', `/v1/sandboxes/${first.id}`);
  });

  it('over UDP has nothing in common with one over TCP but the number', async () => {
    const hostPort = await freePort();
    const { id } = await sandbox({ publish: [{ hostPort, port: 53, protocol: 'udp' }] });
    const add = (body: object) => test.call('POST', `/v1/sandboxes/${id}/published`, { body });
    expect((await add({ hostPort, port: 3000 })).json).toMatchObject({ protocol: 'tcp', hostPort });
    expect((await add({ hostPort, port: 54, protocol: 'udp' })).status).toBe(409);
    expect((await add({ hostPort, port: 54, protocol: 'sctp' })).status).toBe(400);
    const path = `/v1/sandboxes/${id}/published/${hostPort}`;
    expect((await test.call('DELETE', `${path}?protocol=udp`)).status).toBe(204);
    expect((await test.call('DELETE', `${path}?protocol=udp`)).status).toBe(404);
    expect(await ports(id)).toMatchObject([{ protocol: 'tcp', hostPort }]);
    expect(await visit(hostPort)).toBe('/x');
    await test.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('is bounded by the quota of the project and by what the operator allows', async () => {
    const { id } = await sandbox({ publish: [{ port: 1 }, { port: 2 }, { port: 3 }] });
    const add = (body: object) => test.call('POST', `/v1/sandboxes/${id}/published`, { body });
    expect((await add({ port: 4 })).status).toBe(201);
    const more = await add({ port: 5 });
    expect([more.status, more.json.error.details.quota]).toEqual([429, 'publishedPorts']);
    const before = (await ports(id)).length;
    expect((await add({ port: 5, hostPort: 80 })).json.error).toMatchObject({ code: 'permission_denied' });
    expect((await add({ port: 5, address: '0.0.0.0' })).json.error).toMatchObject({
      code: 'permission_denied',
      message: expect.stringContaining('only on 127.0.0.1'),
    });
    expect((await add({ port: 0 })).status).toBe(400);
    expect(await ports(id)).toHaveLength(before);
    await test.call('DELETE', `/v1/sandboxes/${id}`);
    await using none = await startTestServer({ policy: openPolicy({ publishing: { addresses: [] } }) });
    const { json } = await none.call('POST', '/v1/sandboxes', { body: { publish: [{ port: 1 }] } });
    expect(json.error.code).toBe('permission_denied');
  });

  it('of a port that nothing listens on inside, or of a stopped sandbox, ends at once', async () => {
    const { id } = await sandbox();
    const publish = async (port: number) =>
      (await test.call('POST', `/v1/sandboxes/${id}/published`, { body: { port } })).json.hostPort as number;
    const [silent, web] = [await publish(9), await publish(3000)];
    await expect(fetch(`http://127.0.0.1:${silent}/`)).rejects.toThrow();
    await test.call('POST', `/v1/sandboxes/${id}/stop`, { body: {} });
    await expect(fetch(`http://127.0.0.1:${web}/`)).rejects.toThrow();
    await test.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('is one sandbox’s, also where two ask for it at once on two addresses', async () => {
    const addresses = ['127.0.0.1', '127.0.0.2'];
    await using two = await startTestServer({ policy: openPolicy({ publishing: { addresses } }) });
    const made = [await two.create(), await two.create()];
    for (let round = 0; round < 20; round++) {
      const hostPort = await freePort();
      const replies = await Promise.all(
        addresses.map((address, at) =>
          two.call('POST', `/v1/sandboxes/${made[at]!.id}/published`, {
            body: { port: 3000, hostPort, address },
          }),
        ),
      );
      expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([201, 409]));
      const won = replies.findIndex(({ status }) => status === 201);
      const path = `/v1/sandboxes/${made[won]!.id}/published/${hostPort}`;
      expect((await two.call('DELETE', path)).status).toBe(204);
      // Nothing listens any more, on either address.
      for (const host of addresses) {
        const server = createServer().listen(hostPort, host);
        await once(server, 'listening');
        server.close();
        await once(server, 'close');
      }
    }
  });

  it('ends its connections when it is taken away', async () => {
    const { id } = await sandbox();
    const { json } = await test.call('POST', `/v1/sandboxes/${id}/published`, { body: { port: 3000 } });
    const socket = connect(json.hostPort, '127.0.0.1');
    await once(socket, 'connect');
    socket.on('error', () => {});
    const closed = once(socket, 'close');
    await test.call('DELETE', `/v1/sandboxes/${id}/published/${json.hostPort}`);
    await closed;
    await test.call('DELETE', `/v1/sandboxes/${id}`);
  });
});
