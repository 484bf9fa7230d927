/**
 * Ends the TLS of a sandbox with a certificate of this installation, and begins TLS of its own to the real
 * server, whose certificate it verifies. Both sides speak the same protocol: what the real server chooses of
 * what the program offers is what the program gets.
 */
import type { Duplex } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { connect, createSecureContext, getCACertificates, TLSSocket, type SecureContext } from 'node:tls';
import { lendWrites } from '../../lib/lend-writes.ts';
import { giveBack } from '../../lib/lent-memory.ts';
import { Denial } from '../carrier/denial.ts';
import type { TlsTermination } from '../carrier/engine.ts';
import type { HttpConnection } from '../http/exchange.ts';
import type { Http1Proxy } from '../http/http1-proxy.ts';
import type { Http2Proxy } from '../http/http2-proxy.ts';
import type { Authority } from './authority.ts';

export interface TerminationOptions {
  readonly authority: Authority;
  readonly trusted: readonly string[];
  readonly http1: Http1Proxy;
  readonly http2: Http2Proxy;
  readonly handshakeMs?: number | undefined;
}

/** What the two TLS sessions of a connection take. */
const SESSIONS_BYTES = 64 * 1024;
const PROTOCOLS = ['h2', 'http/1.1'];

export function terminateTls({
  authority,
  trusted,
  http1,
  http2,
  handshakeMs = 10_000,
}: TerminationOptions): TlsTermination {
  let context: SecureContext | undefined;
  /** Reading the trust store takes 0.1 s, so it is read once, and only by a server that terminates TLS. */
  function trust(): SecureContext {
    if (context) return context;
    const store = [...getCACertificates('default'), ...getCACertificates('system'), ...trusted];
    context = createSecureContext({ ca: [...new Set(store)], minVersion: 'TLSv1.2' });
    return context;
  }

  async function begin(raw: Duplex, name: string, protocols: readonly string[]): Promise<TLSSocket> {
    const socket = connect({
      socket: raw,
      servername: name,
      secureContext: trust(),
      ALPNProtocols: [...protocols],
      rejectUnauthorized: true,
    });
    // It may fail before anybody has a use for it.
    socket.on('error', () => {});
    await settled(socket, 'secureConnect', handshakeMs, (error) => {
      const why = socket.authorizationError?.toString() ?? error;
      return new Denial('tls', `TLS with ${name} failed: ${why}`);
    });
    // OpenSSL is still reading when Node says that the handshake is over, and what waited for that runs
    // inside the call. A session that is destroyed there is freed under it, and the server ends with a
    // segmentation fault.
    await nextTurn();
    if (socket.destroyed) throw new Denial('tls', `TLS with ${name} failed: the connection ended`);
    return socket;
  }

  return {
    async take(stream, name, hello, connection, dial) {
      const offered = PROTOCOLS.filter((protocol) => hello.protocols.includes(protocol));
      const wanted = offered.length > 0 ? offered : ['http/1.1'];
      let first = dial && (await begin(await dial(), name, wanted));
      // A denial is explained over HTTP/1 if the program speaks it: its status line has the reason.
      const alone = wanted.includes('http/1.1') ? 'http/1.1' : wanted[0]!;
      const protocol = first?.alpnProtocol || (dial ? 'http/1.1' : alone);
      lendWrites(stream);
      const inside = new TLSSocket(stream, {
        isServer: true,
        secureContext: authority.contextFor(name),
        ...(hello.protocols.length > 0 && { ALPNProtocols: [protocol] }),
      });
      // TLS has its copy by then, and the connection to the guest has lent them.
      stream.on('data', (bytes: Buffer) => process.nextTick(giveBack, bytes));
      inside.on('error', () => {});
      const releases = [connection.hold(inside), connection.hold({ readableLength: SESSIONS_BYTES })];
      inside.once('close', () => {
        for (const release of releases) release();
        first?.destroy();
        if (!stream.destroyed) stream.destroy();
      });
      await settled(
        inside,
        'secure',
        handshakeMs,
        () => new Denial('tls', `The program ended TLS with ${name}`),
      );
      // A socket that no `tls.Server` made does not know that its handshake is over, and HTTP/2 asks for
      // that.
      Object.assign(inside, { secureConnecting: false });
      const over: HttpConnection = {
        ...connection,
        secure: true,
        dial: async () => {
          const ready = first;
          first = undefined;
          if (ready && !ready.destroyed) return ready;
          if (!dial) throw new Denial('closed', 'There is no connection');
          return begin(await dial(), name, [protocol]);
        },
      };
      (protocol === 'h2' ? http2 : http1).take(inside, over);
    },
  };
}

async function settled(
  socket: TLSSocket,
  event: 'secure' | 'secureConnect',
  timeoutMs: number,
  toError: (why: string) => Denial,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onError = (error: Error) => reject(toError(error.message));
  const onClose = () => reject(toError('the connection ended'));
  const timer = setTimeout(() => reject(toError('no answer in time')), timeoutMs);
  socket.once(event, resolve).once('error', onError).once('close', onClose);
  try {
    await promise;
  } catch (error) {
    socket.on('error', () => {});
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    socket.off(event, resolve).off('error', onError).off('close', onClose);
  }
}
