/** Memory of what is carried is given back early: bytes have to arrive as they were all the same. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, Agent, request } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { afterEach, expect, it } from 'vitest';
import { openWorld } from '../testing/program.ts';
import { newAuthority, openAuthority } from './authority.ts';

const opened: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of opened.splice(0).toReversed()) await close();
});

it('bodies of all sizes come and go unchanged, one after the other on one connection', async () => {
  const site = openAuthority(newAuthority());
  const own = openAuthority(newAuthority());
  const server = createServer(
    { SNICallback: (name, done) => done(null, site.contextFor(name)) },
    (message, response) => {
      const length = message.headers['content-length'];
      if (length !== undefined) response.setHeader('content-length', length);
      message.pipe(response);
    },
  ).listen(0, '127.0.0.1');
  await once(server, 'listening');
  opened.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const world = openWorld({ authority: own, trusted: [site.certificate] });
  opened.push(() => world.egress.close());
  const name = 'api.example.org';
  world.names.set(name, ['127.0.0.1']);
  world.egress.policies.set(world.sandbox, [{ allow: [{ to: `${name}:${port}`, methods: ['POST'] }] }]);
  const socket = connect({
    socket: world.connect({ name, port }).socket,
    servername: name,
    ca: own.certificate,
  });
  await once(socket, 'secureConnect');
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  agent.createConnection = () => socket;
  opened.push(() => agent.destroy());

  for (const framed of [true, false])
    for (const size of [1, 4095, 16_384, 70_000, 5_000_000]) {
      const body = randomBytes(size);
      const headers = { host: `${name}:${port}`, ...(framed && { 'content-length': size }) };
      const outgoing = request({ agent, method: 'POST', path: '/', headers });
      outgoing.end(body);
      const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) {
        chunks.push(chunk as Buffer);
        // A reader that is slow makes every buffer on the way full.
        if (chunks.length % 16 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
      }
      expect(
        Buffer.concat(chunks).equals(body),
        `${size} bytes, ${framed ? 'with' : 'without'} a length`,
      ).toBe(true);
    }
});
