import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server[Symbol.asyncDispose]());

interface Made {
  sandboxID: string;
  domain: string;
  trafficAccessToken: string;
}

async function serving(network: Record<string, unknown>): Promise<Made> {
  const made = (await server.call('POST', '/v2/sandboxes', { body: { templateID: 'base', network } }))
    .json as Made;
  await server.call('POST', `/v1/sandboxes/sbx_${made.sandboxID}/commands`, {
    body: { argv: ['http-server', '4000'] },
  });
  return made;
}

function echo({ sandboxID, domain }: Made, headers: Record<string, string> = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const { port } = new URL(server.server.url);
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, {
      headers: { ...headers, host: `4000-${sandboxID}.${domain}` },
    });
    socket.on('open', () => socket.send('echo'));
    socket.on('message', (data: Buffer) => {
      resolve(data.toString());
      socket.close();
    });
    socket.on('error', reject);
  });
}

describe("WebSockets to ports of sandboxes that E2B's clients made", () => {
  it('are open to everybody by default', async () => {
    expect(await echo(await serving({}))).toBe('echo');
  });

  it('need the traffic token if their maker wished so', async () => {
    const made = await serving({ allowPublicTraffic: false });
    const other = await serving({ allowPublicTraffic: false });
    await expect(echo(made)).rejects.toThrow('403');
    await expect(echo(made, { 'e2b-traffic-access-token': other.trafficAccessToken })).rejects.toThrow('403');
    expect(await echo(made, { 'e2b-traffic-access-token': made.trafficAccessToken })).toBe('echo');
  });

  it('are refused for a sandbox that is gone', async () => {
    const made = await serving({});
    await server.call('DELETE', `/sandboxes/${made.sandboxID}`);
    await expect(echo(made)).rejects.toThrow('502');
  });
});
