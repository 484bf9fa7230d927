import { once } from 'node:events';
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { discard } from './http-body.ts';

const opened: (() => void)[] = [];
afterEach(() => opened.splice(0).forEach((close) => close()));

async function served(answers: (response: ServerResponse) => void) {
  const closed: Promise<unknown>[] = [];
  const server = createServer((_request, response) => {
    const socket = response.socket!.on('error', () => {});
    closed.push(new Promise<void>((resolve) => socket.once('close', () => resolve())));
    answers(response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const agent = new Agent({ keepAlive: true });
  opened.push(
    () => server.close(),
    () => server.closeAllConnections(),
    () => agent.destroy(),
  );
  const outgoing = request({ port: (server.address() as AddressInfo).port, agent }).end();
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  return { answer, agent, closed: () => closed[0]! };
}

describe('discard()', () => {
  it('ends the connection of a server that sends on and on', async () => {
    const { answer, closed } = await served((response) => {
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
        response.once('drain', more);
      };
      more();
    });
    discard(answer);
    await closed();
  });

  it('ends the connection of one that takes its time', async () => {
    const { answer, closed } = await served((response) => void response.write('x'));
    discard(answer, 50);
    await closed();
  });

  it('keeps the connection after a short answer', async () => {
    const { answer, agent } = await served((response) => response.end('done'));
    discard(answer);
    await once(answer, 'end');
    await new Promise((go) => setImmediate(go));
    expect(Object.values(agent.freeSockets).flat()).toHaveLength(1);
  });
});
