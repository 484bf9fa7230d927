import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createSecureServer, get as getSecure } from 'node:https';
import { get } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { newAuthority, openAuthority } from '../../egress/tls/authority.ts';
import { cutOff } from './stream-answer.ts';

/** Sends a part of an answer, and cuts it off. */
const partly: RequestListener = (_request, response) => {
  response.write('a part');
  setTimeout(() => cutOff(response), 20);
};

it.for(['http', 'https'] as const)(
  'an answer that is cut off over %s is a reset connection',
  async (scheme) => {
    const authority = openAuthority(newAuthority());
    const secure = {
      SNICallback: (name: string, done: (error: null, context: object) => void) =>
        done(null, authority.contextFor(name)),
    };
    const server: Server =
      scheme === 'http' ? createServer(partly) : createSecureServer(secure as object, partly);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const code = await new Promise((resolve) => {
      const options = { port, host: '127.0.0.1', rejectUnauthorized: false, servername: 'box.example.org' };
      const request = (scheme === 'http' ? get : getSecure)(options, (response) => {
        response.resume();
        response.on('error', (error: NodeJS.ErrnoException) => resolve(error.code));
        response.on('end', () => resolve('ended'));
      });
      request.on('error', () => {});
    });
    expect(code).toBe('ECONNRESET');
    server.close();
  },
);
