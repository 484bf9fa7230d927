/**
 * A proxy of HTTP/2 for carried connections: each stream of the program becomes a stream to the target, with
 * its own check. Trailers go through, so that gRPC works. Server push and CONNECT do not.
 */
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Duplex } from 'node:stream';
import { copy } from '../carrier/copy.ts';
import { Denial } from '../carrier/denial.ts';
import { asDenial } from './as-denial.ts';
import { collectBody } from './collect-body.ts';
import { pauseUntil } from './pause-until.ts';
import type { Exchange, Header, HttpConnection } from './exchange.ts';
import { runExchange } from './run-exchange.ts';
import { widenSession } from './widen-session.ts';

export interface Http2Proxy {
  take(stream: Duplex, connection: HttpConnection): void;
  close(): void;
}

const SETTINGS = {
  enablePush: false,
  maxConcurrentStreams: 100,
  maxHeaderListSize: 64 * 1024,
};
/** What one stream may send ahead. Programs are near, targets may be far. */
const FROM_PROGRAM = { ...SETTINGS, initialWindowSize: 256 * 1024 };
const FROM_TARGET = { ...SETTINGS, initialWindowSize: 512 * 1024 };

export function openHttp2Proxy(): Http2Proxy {
  const connections = new WeakMap<Duplex, { connection: HttpConnection; target: Target }>();
  const server = createServer({ settings: FROM_PROGRAM, maxHeaderListPairs: 200, maxSessionMemory: 10 });
  server.on('sessionError', () => {});
  server.on('session', (session) => {
    session.on('error', () => {});
    widenSession(session);
    // Resets that come in floods are cheap to send and not to serve.
    let resets = 0;
    session.on('stream', (stream) =>
      stream.on('close', () => {
        if (stream.rstCode === constants.NGHTTP2_NO_ERROR) resets = 0;
        else if (++resets > 1000) session.destroy();
      }),
    );
  });

  /**
   * Node begins a session inside this call, or none: not for TLS that settled on no protocol, which a program
   * gets by a second hello that is unlike the first. Nothing may be left waiting then, for the next session
   * may be another sandbox's.
   */
  function sessionOf(stream: Duplex): ServerHttp2Session | undefined {
    let begun: ServerHttp2Session | undefined;
    const onSession = (session: ServerHttp2Session) => (begun = session);
    server.once('session', onSession);
    try {
      server.emit('connection', stream);
    } catch {
      // The stream has ended.
    } finally {
      server.off('session', onSession);
    }
    return begun;
  }

  return {
    take(stream, connection) {
      const target = targetOf(connection);
      connections.set(stream, { connection, target });
      stream.once('close', () => target.close());
      const session = sessionOf(stream);
      if (!session) return void stream.destroy();
      session.on('stream', (one, headers, _flags, raw) => {
        serve(one, headers, raw, connection, target).catch((error: unknown) =>
          answer(one, connection, asDenial(error), headers.accept),
        );
      });
    },
    close: () => server.close(),
  };
}

interface Target {
  session(authority: string): Promise<ClientHttp2Session>;
  close(): void;
}

/** One session to the target for each connection of a program, made again if it ends. */
function targetOf(connection: HttpConnection): Target {
  let current: Promise<ClientHttp2Session> | undefined;
  const open = async (authority: string): Promise<ClientHttp2Session> => {
    const socket = await connection.dial();
    const session = connect(`${connection.secure ? 'https' : 'http'}://${authority}`, {
      createConnection: () => socket,
      settings: FROM_TARGET,
    });
    session.on('error', () => {}).once('connect', () => widenSession(session));
    const forget = () => (current = undefined);
    session.once('close', forget).once('goaway', forget);
    return session;
  };
  return {
    session(authority) {
      current ??= open(authority).catch((error: unknown) => {
        current = undefined;
        throw error;
      });
      return current;
    },
    close() {
      current?.then(
        (session) => session.destroy(),
        () => {},
      );
    },
  };
}

async function serve(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  raw: readonly string[],
  connection: HttpConnection,
  target: Target,
): Promise<void> {
  stream.on('error', () => {});
  stream.once('close', connection.hold(stream));
  const method = headers[':method'] ?? 'GET';
  if (method === 'CONNECT')
    throw new Denial('ambiguous_request', 'A tunnel cannot be opened: there is no proxy here');
  const pairs = pairsOf(raw);
  const host = headers.host;
  const exchange = connection.begin({
    method,
    target: headers[':path'] ?? '/',
    authorities: [headers[':authority'], host].filter((one) => one !== undefined),
    headers: pairs,
  });
  await runExchange(exchange, () => forward(stream, method, connection, target, exchange));
}

async function forward(
  stream: ServerHttp2Stream,
  method: string,
  connection: HttpConnection,
  target: Target,
  exchange: Exchange,
): Promise<void> {
  const body = exchange.collect
    ? await collectBody(stream, (chunk) => exchange.spend('out', chunk))
    : undefined;
  const session = await target.session(exchange.authority);
  const outgoing = session.request(
    {
      ':method': method,
      ':path': exchange.target,
      ':authority': exchange.authority,
      ':scheme': connection.secure ? 'https' : 'http',
      ...headersOf(body ? exchange.finishHead(body) : exchange.headers),
    },
    { endStream: body === undefined && stream.readableEnded, waitForTrailers: true },
  );
  outgoing.once('close', connection.hold(outgoing));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const failed = (error: unknown) => {
    outgoing.close(constants.NGHTTP2_CANCEL);
    reject(asDenial(error));
  };
  const touching = (direction: 'out' | 'in') => (chunk: Buffer) => {
    connection.touch();
    return exchange.spend(direction, chunk);
  };
  let trailers: IncomingHttpHeaders | undefined;
  stream.on('trailers', (given) => (trailers = given));
  outgoing.on(
    'wantTrailers',
    guarded(() => outgoing.sendTrailers(cleanTrailers(trailers)), failed),
  );
  outgoing.on('error', failed);
  stream.once('close', () => {
    if (stream.rstCode !== constants.NGHTTP2_NO_ERROR)
      failed(new Denial('closed', 'The program ended its request'));
  });
  const onResponse = (answered: IncomingHttpHeaders & { ':status'?: number }) => {
    exchange.attempt.update({ status: answered[':status'] ?? null });
    if (stream.destroyed || stream.headersSent) return;
    let last: IncomingHttpHeaders | undefined;
    outgoing.on('trailers', (given) => (last = given));
    stream.respond(maskAll(answered, exchange), { waitForTrailers: true });
    stream.on(
      'wantTrailers',
      guarded(() => stream.sendTrailers(cleanTrailers(last)), failed),
    );
    outgoing.on('data', (chunk: Buffer) => {
      let wait: number;
      try {
        wait = touching('in')(chunk);
      } catch (error) {
        failed(error);
        return;
      }
      const room = stream.write(exchange.maskBody(chunk, false));
      pauseUntil(outgoing, wait, room ? undefined : stream);
    });
    outgoing.on('end', () => {
      const rest = exchange.maskBody(Buffer.alloc(0), true);
      stream.end(rest.length > 0 ? rest : undefined);
      resolve();
    });
  };
  outgoing.on('response', guarded(onResponse, failed));
  outgoing.once('close', () => reject(new Denial('connect', 'The target ended the request')));
  if (body) outgoing.end(body);
  else if (!stream.readableEnded) copy(stream, outgoing, touching('out'), failed);
  await promise;
}

/** What Node refuses to pass on, such as an impossible status, ends the one request that it came with. */
function guarded<Given extends unknown[]>(
  listener: (...given: Given) => void,
  failed: (error: unknown) => void,
): (...given: Given) => void {
  return (...given) => {
    try {
      listener(...given);
    } catch (error) {
      failed(error);
    }
  };
}

function pairsOf(raw: readonly string[]): Header[] {
  const pairs: Header[] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index]!;
    if (!name.startsWith(':') && name !== 'host') pairs.push([name, raw[index + 1]!]);
  }
  return pairs;
}

function headersOf(pairs: readonly Header[]): OutgoingHttpHeaders {
  const headers: Record<string, string | string[]> = Object.create(null) as Record<string, string | string[]>;
  for (const [name, value] of pairs) {
    const lower = name.toLowerCase();
    const known = headers[lower];
    headers[lower] = known === undefined ? value : [...(Array.isArray(known) ? known : [known]), value];
  }
  return headers;
}

function maskAll(
  answered: IncomingHttpHeaders & { ':status'?: number },
  exchange: Exchange,
): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = { ':status': answered[':status'] };
  for (const [name, value] of Object.entries(answered)) {
    if (name.startsWith(':') || value === undefined) continue;
    headers[name] = Array.isArray(value)
      ? value.map((one) => exchange.maskHeader(one))
      : exchange.maskHeader(String(value));
  }
  return headers;
}

function cleanTrailers(trailers: IncomingHttpHeaders | undefined): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(trailers ?? {}).filter(([name]) => !name.startsWith(':')));
}

function answer(
  stream: ServerHttp2Stream,
  connection: HttpConnection,
  denial: Denial,
  accept: string | undefined,
): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.headersSent) {
    stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    return;
  }
  const page = connection.pageOf(denial, accept);
  stream.respond({ ':status': page.status, 'content-type': page.type, 'x-cay-network': denial.reason });
  stream.end(page.body);
  stream.resume();
}
