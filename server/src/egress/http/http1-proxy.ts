/**
 * A strict proxy of HTTP/1 for carried connections. Node's parser reads every request and its client writes
 * it again, so that both ends agree on where a request begins, whatever the program sent.
 */
import {
  Agent,
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { giveBack, lend } from '../../lib/lent-memory.ts';
import { copy } from '../carrier/copy.ts';
import { Denial } from '../carrier/denial.ts';
import { asDenial } from './as-denial.ts';
import { collectBody } from './collect-body.ts';
import { pauseUntil } from './pause-until.ts';
import { endToEnd, type Exchange, type Header, type HttpConnection } from './exchange.ts';
import { runExchange } from './run-exchange.ts';

export interface Http1Proxy {
  /** Takes over a stream on which requests come. */
  take(stream: Duplex, connection: HttpConnection): void;
  close(): void;
}

const MAX_HEADER_BYTES = 64 * 1024;

export function openHttp1Proxy(): Http1Proxy {
  const connections = new WeakMap<Duplex, { connection: HttpConnection; agent: Agent }>();
  const server = createServer({
    maxHeaderSize: MAX_HEADER_BYTES,
    headersTimeout: 30_000,
    requestTimeout: 0,
    keepAliveTimeout: 60_000,
    insecureHTTPParser: false,
    requireHostHeader: true,
  });
  // Programs that send a request and close their side still want the answer. It is no documented option.
  Object.assign(server, { httpAllowHalfOpen: true });
  server.maxRequestsPerSocket = 0;
  const of = (message: IncomingMessage) => connections.get(message.socket)!;

  server.on('request', (message, response) => {
    const { connection, agent } = of(message);
    message.once('close', connection.hold(message));
    response.once('close', connection.hold(response));
    handle(message, response, connection, agent).catch((error: unknown) => {
      answer(response, connection, asDenial(error), message.headers.accept);
      message.resume();
    });
  });
  server.on('upgrade', (message: IncomingMessage, socket: Duplex, head: Buffer) => {
    const { connection } = of(message);
    if (head.length > 0) socket.unshift(head);
    upgrade(message, socket, connection).catch((error: unknown) => {
      const page = connection.pageOf(asDenial(error), message.headers.accept);
      socket.end(
        `HTTP/1.1 ${page.status} ${page.statusText}\r\nContent-Type: ${page.type}\r\nContent-Length: ${page.body.length}\r\nConnection: close\r\n\r\n${page.body.toString()}`,
      );
    });
  });
  server.on('connect', (message: IncomingMessage, socket: Duplex) => {
    const { connection } = of(message);
    const denial = new Denial(
      'ambiguous_request',
      'A tunnel cannot be opened: there is no proxy at this address',
    );
    const page = connection.pageOf(denial, undefined);
    socket.end(`HTTP/1.1 ${page.status} ${page.statusText}\r\nConnection: close\r\n\r\n`);
  });
  server.on('clientError', (_error, socket) => {
    if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
    else socket.destroy();
  });

  return {
    take(stream, connection) {
      // A connection to the target for each that the program makes: requests of one never follow those of
      // another.
      const agent = new Agent({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1 });
      agent.createConnection = (_options, callback) => {
        connection.dial().then(
          (socket) => callback?.(null, socket),
          (error: Error) => callback?.(error, undefined as never),
        );
        return undefined;
      };
      connections.set(stream, { connection, agent });
      stream.once('close', () => agent.destroy());
      server.emit('connection', stream);
    },
    close: () => server.close(),
  };
}

function factsOf(message: IncomingMessage, connection: HttpConnection) {
  const headers = endToEnd(message.rawHeaders);
  let target = message.url ?? '/';
  const authorities = headers.filter(([name]) => name.toLowerCase() === 'host').map(([, value]) => value);
  if (!target.startsWith('/') && target !== '*') {
    // The absolute form that proxies are sent. Its authority counts too.
    const url = URL.parse(target);
    const scheme = connection.secure ? 'https:' : 'http:';
    if (!url || url.protocol !== scheme || url.username !== '')
      throw new Denial('ambiguous_request', `"${target.slice(0, 200)}" is no path of this server`);
    authorities.push(url.host);
    target = target.replace(/^[a-z]+:\/\/[^/?#]*/i, '') || '/';
    if (!target.startsWith('/')) target = `/${target}`;
  }
  return {
    method: message.method ?? 'GET',
    target,
    authorities,
    headers: headers.filter(([name]) => name.toLowerCase() !== 'host'),
  };
}

async function handle(
  message: IncomingMessage,
  response: ServerResponse,
  connection: HttpConnection,
  agent: Agent,
): Promise<void> {
  const exchange = connection.begin(factsOf(message, connection));
  await runExchange(exchange, () => forward(message, response, connection, agent, exchange));
}

async function forward(
  message: IncomingMessage,
  response: ServerResponse,
  connection: HttpConnection,
  agent: Agent,
  exchange: Exchange,
): Promise<void> {
  const body = exchange.collect
    ? await collectBody(message, (chunk) => exchange.spend('out', chunk))
    : undefined;
  const headers = [...(body ? exchange.finishHead(body) : exchange.headers)];
  // Node frames a body by itself for some methods alone; without a frame it would be read as a request.
  if (message.headers['transfer-encoding'] !== undefined)
    headers.push(body ? ['Content-Length', String(body.length)] : ['Transfer-Encoding', 'chunked']);
  const outgoing = request({
    agent,
    method: message.method ?? 'GET',
    path: exchange.target,
    headers: flatten([['Host', exchange.authority], ...headers]),
    setHost: false,
    maxHeaderSize: MAX_HEADER_BYTES,
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const failed = (error: unknown) => {
    outgoing.destroy();
    reject(asDenial(error));
  };
  outgoing.on('error', failed);
  outgoing.on('upgrade', (_answer, socket) => {
    socket.destroy();
    failed(new Error('the target upgrades without being asked'));
  });
  response.on('close', () => {
    if (response.writableFinished) return;
    outgoing.destroy();
    reject(new Denial('closed', 'The program ended its connection'));
  });
  outgoing.on('response', (incoming) => {
    try {
      receive(incoming, response, connection, exchange, failed, resolve);
    } catch (error) {
      // Node refuses to write some statuses and reason phrases that it reads.
      failed(error);
    }
  });
  sendBody(message, outgoing, body, connection, exchange, failed);
  await promise;
}

function sendBody(
  message: IncomingMessage,
  outgoing: ClientRequest,
  body: Buffer | undefined,
  connection: HttpConnection,
  exchange: Exchange,
  failed: (error: unknown) => void,
): void {
  if (body) {
    outgoing.end(body);
    return;
  }
  const bodiless =
    message.headers['content-length'] === undefined && message.headers['transfer-encoding'] === undefined;
  if (bodiless) {
    message.resume();
    outgoing.end();
    return;
  }
  copy(
    message as unknown as Duplex,
    outgoing as unknown as Duplex,
    (chunk) => {
      lend(chunk);
      connection.touch();
      return exchange.spend('out', chunk);
    },
    failed,
  );
}

function receive(
  incoming: IncomingMessage,
  response: ServerResponse,
  connection: HttpConnection,
  exchange: Exchange,
  failed: (error: unknown) => void,
  done: () => void,
): void {
  exchange.attempt.update({ status: incoming.statusCode ?? null });
  const headers = endToEnd(incoming.rawHeaders).map(([name, value]): Header => [
    name,
    exchange.maskHeader(value),
  ]);
  response.sendDate = false;
  response.writeHead(incoming.statusCode ?? 502, incoming.statusMessage, flatten(headers));
  response.flushHeaders();
  freeWhatIsParsed(incoming);
  incoming.on('error', failed);
  incoming.on('aborted', () => failed(new Error('the target ended its answer early')));
  incoming.on('end', () => {
    const rest = exchange.maskBody(Buffer.alloc(0), true);
    try {
      if (incoming.rawTrailers.length > 0)
        response.addTrailers(Object.fromEntries(endToEnd(incoming.rawTrailers)));
    } catch (error) {
      failed(error);
      return;
    }
    response.end(rest.length > 0 ? rest : undefined, done);
  });
  incoming.on('data', (chunk: Buffer) => {
    connection.touch();
    let wait: number;
    try {
      wait = exchange.spend('in', chunk);
    } catch (error) {
      failed(error);
      return;
    }
    // Nobody else has it. TLS has its copy when it says that it is written; in the clear that says only that
    // it waits to be sent, and the connection to the guest gives it back.
    lend(chunk);
    const written = connection.secure ? () => giveBack(chunk) : undefined;
    const room = response.write(exchange.maskBody(chunk, false), written);
    pauseUntil(incoming, wait, room ? undefined : response);
  });
}

/**
 * Node's client reads an answer from buffers that it copies bodies out of. They are freed when they are
 * parsed.
 */
function freeWhatIsParsed(incoming: IncomingMessage): void {
  const { socket } = incoming;
  const parsed = (bytes: Buffer) => {
    lend(bytes);
    giveBack(bytes);
  };
  // The client listens since before, so it has its turn before this.
  socket.on('data', parsed);
  incoming.once('close', () => socket.off('data', parsed));
}

/** WebSockets and the like: the request is checked as any other, and what follows is copied. */
async function upgrade(message: IncomingMessage, socket: Duplex, connection: HttpConnection): Promise<void> {
  const exchange = connection.begin(factsOf(message, connection));
  const protocol = message.headers.upgrade ?? '';
  const dialled = connection.dial();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const outgoing = request({
    createConnection: (_options, callback) => {
      dialled.then(
        (one) => callback(null, one),
        (error: Error) => callback(error, undefined as never),
      );
      return undefined;
    },
    method: message.method ?? 'GET',
    path: exchange.target,
    headers: flatten([
      ['Host', exchange.authority],
      ...(exchange.collect ? exchange.finishHead(Buffer.alloc(0)) : exchange.headers),
      ['Connection', 'Upgrade'],
      ['Upgrade', protocol],
    ]),
    setHost: false,
  });
  outgoing.on('error', reject);
  socket.on('close', () => outgoing.destroy());
  outgoing.on('response', (incoming) => {
    exchange.attempt.update({ status: incoming.statusCode ?? null });
    writeHead(socket, incoming, exchange, [['Connection', 'close']]);
    // Without a length the end of the connection is the end of the body.
    copy(incoming as unknown as Duplex, socket, (chunk) => exchange.spend('in', chunk), reject);
    incoming.on('end', resolve);
  });
  outgoing.on('upgrade', (incoming, upstream, head) => {
    exchange.attempt.update({ status: 101 });
    writeHead(socket, incoming, exchange, [
      ['Connection', 'Upgrade'],
      ['Upgrade', incoming.headers.upgrade ?? protocol],
    ]);
    if (head.length > 0) upstream.unshift(head);
    const both = (direction: 'out' | 'in') => (chunk: Buffer) => {
      connection.touch();
      return exchange.spend(direction, chunk);
    };
    const cut = (error: unknown) => {
      upstream.destroy();
      socket.destroy();
      reject(asDenial(error));
    };
    upstream.on('error', cut);
    upstream.on('close', () => {
      socket.end();
      resolve();
    });
    socket.on('close', () => upstream.destroy());
    copy(socket, upstream, both('out'), cut);
    copy(upstream, socket, both('in'), cut);
  });
  outgoing.end();
  await runExchange(exchange, () => promise);
}

function writeHead(
  socket: Duplex,
  incoming: IncomingMessage,
  exchange: Exchange,
  own: readonly Header[],
): void {
  const headers = endToEnd(incoming.rawHeaders).map(
    ([name, value]) => [name, exchange.maskHeader(value)] as const,
  );
  const lines = [...headers, ...own].map(([name, value]) => `${name}: ${value}`);
  socket.write(
    `HTTP/1.1 ${incoming.statusCode} ${incoming.statusMessage}\r\n${lines.join('\r\n')}\r\n\r\n`,
    'latin1',
  );
}

function answer(
  response: ServerResponse,
  connection: HttpConnection,
  denial: Denial,
  accept: string | undefined,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const page = connection.pageOf(denial, accept);
  response.writeHead(page.status, page.statusText, {
    'Content-Type': page.type,
    'Content-Length': page.body.length,
    'X-Cay-Network': denial.reason,
    // What the program still sends of the refused request is not read as another one.
    Connection: 'close',
  });
  response.end(response.req.method === 'HEAD' ? undefined : page.body);
}

function flatten(headers: readonly Header[]): string[] {
  return headers.flat();
}
