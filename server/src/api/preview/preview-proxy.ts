/** Carries a visitor's requests to a port inside a sandbox, and its answers back, as they come. */
import { request as httpRequest, STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline, type Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { refuseUpgrade } from '../refuse-upgrade.ts';
import type { Upgrade } from '../upgrades.ts';
import { connectionStream } from './connection-stream.ts';
import { isEncrypted, toApplication, toVisitor } from './forwarded-headers.ts';
import type { PreviewAddress } from './preview-address.ts';
import { tokenCookie, tokenOf, type GivenToken } from './preview-token.ts';

export interface PreviewProxy {
  handle(address: PreviewAddress, request: IncomingMessage, response: ServerResponse): Promise<void>;
  upgrade(address: PreviewAddress, request: IncomingMessage, socket: Duplex, head: Buffer, upgrade: Upgrade): void;
}

/** `control` decides who may. */
export function previewProxy(control: Pick<Control, 'preview'>): PreviewProxy {
  async function connect(address: PreviewAddress, given: GivenToken): Promise<Duplex> {
    const guest = await admit(address, given);
    return connectionStream(await guest.ports.connect(address.target!.port));
  }

  function admit(address: PreviewAddress, given: GivenToken) {
    if (!address.target) throw new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
    return control.preview(address.target.id, address.target.port, given.token);
  }

  return {
    async handle(address, request, response) {
      const given = tokenOf(request, address);
      const path = given.path === '' || given.path.startsWith('?') ? `/${given.path}` : given.path;
      const moved = given.inQuery || given.path !== path;
      if (moved && (request.method === 'GET' || request.method === 'HEAD')) {
        // The token is checked before it becomes a cookie, and the address is left without it.
        await admit(address, given);
        if (given.inQuery) response.setHeader('Set-Cookie', tokenCookie(given.token!, address, isEncrypted(request)));
        response.writeHead(302, { Location: address.prefix + path, 'Cache-Control': 'no-store', 'Referrer-Policy': 'no-referrer' }).end();
        return;
      }
      const stream = await connect(address, given);
      await forward(address, request, response, path, stream);
    },
    upgrade(address, request, socket, head, upgrade) {
      const given = tokenOf(request, address);
      connect(address, given).then(
        (stream) => forwardUpgrade({ address, request, socket, head, path: given.path || '/', stream, upgrade }),
        (error: unknown) => upgrade.refused(refuseUpgrade(socket, error)),
      );
      socket.on('error', () => socket.destroy());
    },
  };
}

function forward(address: PreviewAddress, request: IncomingMessage, response: ServerResponse, path: string, stream: Duplex): Promise<void> {
  return new Promise((resolve, reject) => {
    const upstream = httpRequest({
      createConnection: () => stream,
      method: request.method,
      path,
      headers: toApplication(request, address, { upgrade: false }),
      setHost: false,
    });
    upstream.on('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, toVisitor(answer.headers, address));
      // Events and slow pages show their headers before their first byte.
      response.flushHeaders();
      pipeline(answer, response, () => {
        stream.destroy();
        resolve();
      });
    });
    upstream.on('error', (error) => {
      stream.destroy();
      reject(new CayError('unavailable', 'The application in the sandbox did not answer', { cause: error }));
    });
    response.once('close', () => {
      upstream.destroy();
      stream.destroy();
      resolve();
    });
    pipeline(request, upstream, () => {});
  });
}

interface ForwardedUpgrade {
  address: PreviewAddress;
  request: IncomingMessage;
  socket: Duplex;
  head: Buffer;
  path: string;
  stream: Duplex;
  upgrade: Upgrade;
}

function forwardUpgrade({ address, request, socket, head, path, stream, upgrade }: ForwardedUpgrade): void {
  const upstream = httpRequest({
    createConnection: () => stream,
    method: request.method,
    path,
    headers: toApplication(request, address, { upgrade: true }),
    setHost: false,
  });
  const over = () => {
    stream.destroy();
    socket.destroy();
  };
  upstream.on('upgrade', (answer, inner: Duplex, innerHead) => {
    upgrade.accepted();
    socket.write(
      statusLine(answer) +
        headerLines({ ...toVisitor(answer.headers, address), connection: 'Upgrade', upgrade: answer.headers.upgrade ?? 'websocket' }),
    );
    if (innerHead.length > 0) socket.write(innerHead);
    if (head.length > 0) inner.write(head);
    pipeline(socket, inner, over);
    pipeline(inner, socket, over);
  });
  upstream.on('response', (answer) => {
    upgrade.refused(answer.statusCode ?? 502);
    socket.write(statusLine(answer) + headerLines({ ...toVisitor(answer.headers, address), connection: 'close' }));
    pipeline(answer, socket, over);
  });
  upstream.on('error', (error) => {
    stream.destroy();
    upgrade.refused(refuseUpgrade(socket, new CayError('unavailable', 'The application in the sandbox did not answer', { cause: error })));
  });
  socket.once('close', over);
  upstream.end();
}

function statusLine({ statusCode = 502 }: IncomingMessage): string {
  return `HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode] ?? ''}\r\n`;
}

function headerLines(headers: Record<string, string | string[]>): string {
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    [value].flat().map((each) => `${name}: ${each.replaceAll(/[\r\n]/g, ' ')}\r\n`),
  );
  return `${lines.join('')}\r\n`;
}
