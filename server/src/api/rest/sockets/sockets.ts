import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { CayError, PortSchema } from '@cay/sdk/protocol';
import type { Logger } from 'pino';
import { WebSocketServer, type WebSocket } from 'ws';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import type { Authenticator } from '../../http/authenticate.ts';
import type { Budgets } from '../../http/budgets.ts';
import { safePath } from '../../../control/events/redact.ts';
import { refuseUpgrade } from '../../http/refuse-upgrade.ts';
import type { Upgrade } from '../../http/upgrades.ts';
import { execSocket } from './exec-socket.ts';
import { answerPings } from './socket-flow.ts';
import { tcpSocket } from './tcp-socket.ts';

export interface Sockets {
  /** Never rejects. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, upgrade: Upgrade): Promise<void>;
  close(): void;
}

export interface SocketContext {
  control: Control;
  principal: Principal;
  ref: string;
  log: Logger;
}

const MAX_MESSAGE = 4 * 1024 * 1024;
const MAX_FRAGMENTS = 4096;
const PING_EVERY_MS = 30_000;
const PATH = /^\/v1\/sandboxes\/([^/?]{1,80})\/(?:(exec)|ports\/(\d{1,5})\/tcp)(?:\?|$)/;

export interface SocketsOptions {
  control: Control;
  authenticator: Authenticator;
  budgets: Budgets;
  log: Logger;
}

export function openSockets(options: SocketsOptions): Sockets {
  const { control, authenticator, budgets, log } = options;
  const server = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_MESSAGE,
    // A message of one-byte fragments would cost far more than its bytes.
    maxFragments: MAX_FRAGMENTS,
    perMessageDeflate: false,
    autoPong: false,
    // One message in each turn of the event loop, so that ten thousand messages in one packet do not block
    // other clients.
    allowSynchronousEvents: false,
    // The key may be one of the offered protocols. It is chosen only if the client offers nothing else.
    handleProtocols: (protocols) => (protocols.has('cay') ? 'cay' : ([...protocols][0] ?? false)),
  });
  const alive = new WeakSet<WebSocket>();
  const pings = setInterval(() => {
    for (const socket of server.clients) {
      if (!alive.delete(socket)) socket.terminate();
      else socket.ping(undefined, false, () => {});
    }
  }, PING_EVERY_MS);
  pings.unref();

  async function prepare(
    request: IncomingMessage,
    { trace }: Upgrade,
  ): Promise<(socket: WebSocket) => Promise<void>> {
    const principal = (trace.principal = await authenticator.authenticate(request));
    // A share of the budget is given back when the client disconnects, which has happened already here.
    if (request.socket.destroyed) throw new CayError('cancelled', 'The caller disconnected');
    // Counts as a stream until the connection and the work that it started have ended.
    trace.share = budgets.take(principal.project, 'stream');
    request.socket.once('close', trace.share.release);
    const match = PATH.exec(request.url ?? '');
    if (!match) throw new CayError('not_found', 'There is no WebSocket here');
    const ref = (trace.sandbox = decode(match[1]!));
    const isExec = match[2] !== undefined;
    trace.route = isExec ? 'execSocket' : 'tcpSocket';
    trace.path = `/v1/sandboxes/{id}/${isExec ? 'exec' : 'ports/{port}/tcp'}`;
    // Checked before the upgrade, so that a sandbox of another project is a plain 404.
    await control.get(principal, ref);
    log.info({ path: safePath(request.url), key: principal.key }, 'websocket');
    const context: SocketContext = { control, principal, ref, log };
    if (isExec) return (socket) => execSocket(socket, context);
    const port = PortSchema.safeParse(Number(match[3]));
    if (!port.success) throw new CayError('invalid_argument', `"${match[3]}" is not a port`);
    return (socket) => tcpSocket(socket, context, port.data);
  }

  return {
    async upgrade(request, socket, head, upgrade) {
      socket.on('error', () => socket.destroy());
      let serve: (socket: WebSocket) => Promise<void>;
      try {
        serve = await prepare(request, upgrade);
      } catch (error) {
        upgrade.refused(refuseUpgrade(socket, error));
        return;
      }
      server.handleUpgrade(request, socket, head, (webSocket) => {
        upgrade.accepted();
        alive.add(webSocket);
        answerPings(webSocket);
        webSocket.on('pong', () => alive.add(webSocket));
        webSocket.on('error', () => webSocket.terminate());
        const served = serve(webSocket);
        upgrade.trace.share?.until(served);
        served.catch((error: unknown) => {
          log.error({ err: error }, 'websocket');
          webSocket.terminate();
        });
      });
    },
    close() {
      clearInterval(pings);
      for (const socket of server.clients) socket.terminate();
      server.close();
    },
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new CayError('invalid_argument', 'The path is not well encoded');
  }
}
