/** Forwards visitors' requests to a port in a sandbox, and streams the answers back. */
import {
  request as httpRequest,
  STATUS_CODES,
  type ClientRequest,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { pipeline, type Duplex } from 'node:stream';
import { CayError } from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { inBackground } from '../../lib/in-background.ts';
import { refuseUpgrade } from '../http/refuse-upgrade.ts';
import { leaveUnread, readOut } from '../http/unread-bodies.ts';
import type { Upgrade } from '../http/upgrades.ts';
import { answerOf, isBadAnswer } from './application-answer.ts';
import { connectionStream } from '../../guest/connection-stream.ts';
import { sendPreviewError } from './error-page.ts';
import { isEncrypted, toApplication, toVisitor } from './forwarded-headers.ts';
import type { OpenConnections } from './open-connections.ts';
import type { PreviewAddress } from './preview-address.ts';
import { tokenCookie, tokenOf, type GivenToken } from './preview-token.ts';

export interface PreviewProxy {
  handle(address: PreviewAddress, request: IncomingMessage, response: ServerResponse): Promise<void>;
  upgrade(
    address: PreviewAddress,
    request: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    upgrade: Upgrade,
  ): void;
}

export interface PreviewProxyOptions {
  /** Checks tokens, and gives the guest. */
  control: Pick<Control, 'preview' | 'previewConnection'>;
  /** Whether the port needs a token, which then becomes a cookie. */
  isPrivate(target: NonNullable<PreviewAddress['target']>): Promise<boolean>;
  connections: OpenConnections;
  /** How long an application may take until its answer begins. */
  answerMs: number;
}

const CONNECT_MS = 30_000;
const BAD_GATEWAY = 502;

export function previewProxy({
  control,
  isPrivate,
  connections,
  answerMs,
}: PreviewProxyOptions): PreviewProxy {
  /**
   * Connects to the port. The connection counts against the bounds of the sandbox and of its project until it
   * closes.
   */
  async function connect(address: PreviewAddress, given: GivenToken, gone: AbortSignal): Promise<Duplex> {
    const guest = await admit(address, given);
    const place = new DisposableStack();
    try {
      place.use(connections.enter(address.target!.id));
      place.use(await control.previewConnection(address.target!.id));
      const late = AbortSignal.timeout(CONNECT_MS);
      const connection = await guest.ports.connect(address.target!.port, {
        signal: AbortSignal.any([gone, late]),
      });
      return connectionStream(connection).once('close', () => place[Symbol.dispose]());
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
  }

  async function admit(address: PreviewAddress, given: GivenToken) {
    if (!address.target)
      throw new CayError('not_found', 'There is no preview here, or the preview token is missing or wrong');
    return control.preview(address.target.id, address.target.port, given.token);
  }

  async function forward(
    address: PreviewAddress,
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    stream: Duplex,
  ) {
    using _ = { [Symbol.dispose]: () => stream.destroy() };
    const upstream = requestOf({ address, request, path, stream, upgrade: false });
    response.once('close', () => upstream.destroy());
    // Not a pipeline: the end of the application's side must not close the visitor's side before it has an
    // answer.
    request.on('error', () => upstream.destroy());
    upstream.once('close', () => {
      request.unpipe(upstream);
      leaveUnread(request);
      // Otherwise it is read out when the answer has been sent.
      if (response.writableFinished) readOut(request);
    });
    request.pipe(upstream);
    const { answer } = await answerOf(upstream, { timeoutMs: answerMs, upgrade: false });
    if (response.destroyed) return;
    // The reason phrase comes from the application and is left out.
    response.writeHead(answer.statusCode!, toVisitor(answer.headers, address));
    // Sends the headers of event streams and slow pages before their first byte.
    response.flushHeaders();
    await new Promise<void>((resolve) => pipeline(answer, response, () => resolve()));
  }

  async function forwardUpgrade({
    address,
    request,
    socket,
    head,
    path,
    stream,
    upgrade,
  }: ForwardedUpgrade): Promise<void> {
    const upstream = requestOf({ address, request, path, stream, upgrade: true });
    const over = () => {
      upstream.destroy();
      stream.destroy();
      socket.destroy();
    };
    socket.once('close', over);
    upstream.end();
    const answered = await answerOf(upstream, { timeoutMs: answerMs, upgrade: true });
    const { answer } = answered;
    if (answered.kind === 'response') {
      upgrade.refused(answer.statusCode!);
      socket.write(
        statusLine(answer) + headerLines({ ...toVisitor(answer.headers, address), connection: 'close' }),
      );
      pipeline(answer, socket, over);
      return;
    }
    upgrade.accepted();
    const protocol = answer.headers.upgrade ?? 'websocket';
    socket.write(
      statusLine(answer) +
        headerLines({ ...toVisitor(answer.headers, address), connection: 'Upgrade', upgrade: protocol }),
    );
    if (answered.head.length > 0) socket.write(answered.head);
    if (head.length > 0) answered.inner.write(head);
    pipeline(socket, answered.inner, over);
    pipeline(answered.inner, socket, over);
  }

  return {
    async handle(address, request, response) {
      const given = tokenOf(request, address);
      const path = given.path === '' || given.path.startsWith('?') ? `/${given.path}` : given.path;
      const moved = given.inQuery || given.path !== path;
      if (moved && (request.method === 'GET' || request.method === 'HEAD')) {
        // Checks the token before it becomes a cookie, and redirects to the address without the token.
        await admit(address, given);
        if (given.inQuery && given.token !== undefined && (await isPrivate(address.target!)))
          response.setHeader('Set-Cookie', tokenCookie(given.token, address, isEncrypted(request)));
        // A path that begins with two slashes would be taken for another host.
        const location = address.prefix + path.replace(/^[/\\]+/, '/');
        response
          .writeHead(302, {
            Location: location,
            'Cache-Control': 'no-store',
            'Referrer-Policy': 'no-referrer',
          })
          .end();
        return;
      }
      const stream = await connect(address, given, closing(response));
      try {
        await forward(address, request, response, path, stream);
      } catch (error) {
        if (!isBadAnswer(error) || response.headersSent) throw error;
        sendPreviewError(address, request, response, error, { status: BAD_GATEWAY });
      }
    },
    upgrade(address, request, socket, head, upgrade) {
      const refuse = (error: unknown) =>
        upgrade.refused(
          refuseUpgrade(socket, error, isBadAnswer(error) ? { status: BAD_GATEWAY } : undefined),
        );
      const carry = async () => {
        const given = tokenOf(request, address);
        const stream = await connect(address, given, closing(socket));
        try {
          await forwardUpgrade({ address, request, socket, head, path: given.path || '/', stream, upgrade });
        } catch (error) {
          stream.destroy();
          throw error;
        }
      };
      inBackground(carry(), refuse);
    },
  };
}

interface Forwarded {
  address: PreviewAddress;
  request: IncomingMessage;
  path: string;
  stream: Duplex;
}

interface ForwardedUpgrade extends Forwarded {
  socket: Duplex;
  head: Buffer;
  upgrade: Upgrade;
}

function requestOf({
  address,
  request,
  path,
  stream,
  upgrade,
}: Forwarded & { upgrade: boolean }): ClientRequest {
  const headers = toApplication(request, address, { upgrade });
  const { method } = request;
  return httpRequest({ createConnection: () => stream, method, path, headers, setHost: false });
}

/** Aborts when the visitor disconnects. */
function closing(answer: ServerResponse | Duplex): AbortSignal {
  const controller = new AbortController();
  if (answer.destroyed) controller.abort();
  answer.once('close', () => controller.abort());
  return controller.signal;
}

function statusLine({ statusCode }: IncomingMessage): string {
  return `HTTP/1.1 ${statusCode} ${STATUS_CODES[statusCode!] ?? ''}\r\n`;
}

function headerLines(headers: Record<string, string | string[]>): string {
  const lines = Object.entries(headers).flatMap(([name, value]) =>
    [value].flat().map((each) => `${name}: ${each.replaceAll(/[\r\n]/g, ' ')}\r\n`),
  );
  return `${lines.join('')}\r\n`;
}
