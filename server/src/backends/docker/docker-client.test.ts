import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { dockerClient } from './docker-client.ts';

let server: Server | undefined;

/** An engine that gives the answers which a real one seldom gives. */
async function engine(answer: RequestListener, version = { ApiVersion: '1.47', MinAPIVersion: '1.24' }) {
  server = createServer((request, response) => {
    if (request.url === '/version') response.end(JSON.stringify(version));
    else answer(request, response);
  });
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve));
  return dockerClient(`tcp://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

describe('the client of the engine', () => {
  it('speaks the oldest version that both know', async () => {
    const urls: string[] = [];
    const answer: RequestListener = ({ url }, response) => {
      urls.push(url!);
      response.end('{}');
    };
    const older = await engine(answer);
    await older.json('GET', '/info', { action: 'look', query: { a: 'b c', none: undefined } });
    older.close();
    server!.close();
    const newer = await engine(answer, { ApiVersion: '1.51', MinAPIVersion: '1.44' });
    await newer.json('GET', '/info', { action: 'look' });
    newer.close();
    expect(urls).toEqual(['/v1.41/info?a=b+c', '/v1.44/info']);
  });

  it('refuses an engine that is too old', async () => {
    const client = await engine(() => {}, { ApiVersion: '1.40', MinAPIVersion: '1.12' });
    await expect(client.json('GET', '/info', { action: 'look' })).rejects.toMatchObject({
      code: 'unsupported',
    });
    client.close();
  });

  it('takes no more bytes than it was told', async () => {
    const client = await engine((_, response) => response.end(Buffer.alloc(5000)));
    await expect(client.bytes('/x', { action: 'read', maxBytes: 4000 })).rejects.toMatchObject({
      code: 'internal',
    });
    client.close();
  });

  it('gives lines however they are cut, and ends a line without end', async () => {
    const client = await engine((_, response) => {
      response.write('{"a":');
      setTimeout(() => {
        response.write('1}\n{"a":2}\n\n');
        response.end('x'.repeat(2 * 1024 * 1024));
      }, 20);
    });
    const seen: unknown[] = [];
    const reading = (async () => {
      for await (const line of client.lines('GET', '/events', { action: 'watch' })) seen.push(line);
    })();
    await expect(reading).rejects.toMatchObject({ code: 'internal' });
    expect(seen).toEqual([{ a: 1 }, { a: 2 }]);
    client.close();
  });

  it('gives up when the answer takes too long, and when the caller does', async () => {
    const client = await engine(() => {});
    await client.json('GET', '/x', { action: 'look', timeoutMs: 200 }).then(
      () => expect.fail('it answered'),
      (error: unknown) => expect(error).toMatchObject({ code: 'deadline_exceeded' }),
    );
    await expect(
      client.json('GET', '/x', { action: 'look', signal: AbortSignal.abort() }),
    ).rejects.toMatchObject({ code: 'cancelled' });
    client.close();
  });

  it('says when a proxy does not hand its connection over', async () => {
    const client = await engine((_, response) => response.end('{}'));
    await expect(
      client.hijack('/exec/x/start', { action: 'reach the guest', body: {} }),
    ).rejects.toMatchObject({ code: 'unsupported' });
    client.close();
  });

  it('takes only hosts that it can reach', () => {
    for (const host of ['', 'ssh://x', '/var/run/docker.sock', 'tcp://'])
      expect(() => dockerClient(host), host).toThrow('Cannot use Docker at');
  });
});
