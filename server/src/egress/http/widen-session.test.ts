import { once } from 'node:events';
import { connect } from 'node:http2';
import { connect as dial, createServer, type AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { widenSession } from './widen-session.ts';

it('leaves a session alone that was destroyed before it says that it has connected', async () => {
  const server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = dial((server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  const session = connect('http://web.example.org', { createConnection: () => socket });
  session.on('error', () => {});
  const connected = once(session, 'connect');
  session.destroy();
  await connected;
  expect(session.destroyed).toBe(true);
  expect(() => session.setLocalWindowSize(1)).toThrow();
  expect(() => widenSession(session)).not.toThrow();
  server.close();
});
