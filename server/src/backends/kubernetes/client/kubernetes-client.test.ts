import { afterEach, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { kubernetesClient } from './kubernetes-client.ts';
import { fakeApiServer, type FakeApiServer } from '../testing/fake-api-server.ts';

describe('kubernetesClient', () => {
  let api: FakeApiServer | undefined;
  afterEach(async () => {
    await api?.close();
    api = undefined;
  });

  it('reads the namespace of the context, and counts what it asks', async () => {
    api = await fakeApiServer({ answer: (_, response) => void response.end('{"a":1}') });
    expect(api.client.namespace).toBe('here');
    expect(
      await api.client.json('GET', '/x', { action: 'look', query: { a: ['1', '2'], b: undefined } }),
    ).toEqual({ a: 1 });
    expect(api.asked).toEqual(['GET /x?a=1&a=2']);
    expect(api.client.requests).toBe(1);
  });

  it('comes back when it is asked to slow down', async () => {
    let left = 2;
    api = await fakeApiServer({
      answer: (_, response) =>
        void (left-- > 0
          ? response.writeHead(429, { 'Retry-After': '0.01' }).end('{"message":"slow"}')
          : response.end('{}')),
    });
    expect(await api.client.json('GET', '/x', { action: 'look' })).toEqual({});
    expect(api.asked.length).toBe(3);
  });

  it('comes back with a socket, too, and says when it is refused for good', async () => {
    let left = 2;
    const sockets = new WebSocketServer({ noServer: true });
    api = await fakeApiServer({
      answer: (_, response) => void response.end('{}'),
      upgrade(request, raw, head) {
        if (left-- <= 0) return sockets.handleUpgrade(request, raw, head, () => {});
        raw.end(
          'HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0.01\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}',
        );
      },
    });
    (await api.client.socket('/x', { action: 'look' })).terminate();
    expect(left).toBe(-1);
    left = 100;
    await expect(api.client.socket('/x', { action: 'look' })).rejects.toMatchObject({
      code: 'resource_exhausted',
    });
    await expect(
      api.client.socket('/x', { action: 'look', signal: AbortSignal.timeout(15) }),
    ).rejects.toMatchObject({
      code: 'deadline_exceeded',
    });
  });

  it('gives up when the caller does', async () => {
    api = await fakeApiServer({ answer: () => {} });
    await expect(
      api.client.json('GET', '/x', { action: 'look', signal: AbortSignal.timeout(50) }),
    ).rejects.toMatchObject({
      code: 'deadline_exceeded',
    });
    const aborter = new AbortController();
    const asked = api.client.json('GET', '/x', { action: 'look', signal: aborter.signal });
    aborter.abort();
    await expect(asked).rejects.toMatchObject({ code: 'cancelled' });
  });

  it('follows the clock of the cluster', async () => {
    const ahead = new Date(Date.now() + 3_600_000).toUTCString();
    api = await fakeApiServer({ answer: (_, response) => void response.setHeader('Date', ahead).end('{}') });
    await api.client.json('GET', '/x', { action: 'look' });
    expect(Math.abs(api.client.now() - Date.now() - 3_600_000)).toBeLessThan(60_000);
  });

  it('says which kubeconfig cannot be read', async () => {
    await expect(kubernetesClient({ kubeconfig: '/nonexistent/config' })).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining('/nonexistent/config') as string,
    });
  });
});
