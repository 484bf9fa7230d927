/**
 * Connects to one of the addresses that a name was resolved to, and to no other. The first that answers wins;
 * the next is tried a moment later, or at once if one fails.
 */
import { connect, type Socket } from 'node:net';
import { Denial } from './denial.ts';
import { throughProxy, type UpstreamProxy } from './upstream-proxy.ts';

export interface DialOptions {
  readonly addresses: readonly string[];
  readonly port: number;
  readonly timeoutMs: number;
  readonly proxy?: UpstreamProxy | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface Dialled {
  readonly socket: Socket;
  readonly address: string;
}

const NEXT_MS = 250;
/**
 * A socket is full when a second piece waits, so that one that is written at once does not stop its reader.
 */
const SOCKET = { noDelay: true, allowHalfOpen: true, writableHighWaterMark: 128 * 1024 };

export function dial({ addresses, port, timeoutMs, proxy, signal }: DialOptions): Promise<Dialled> {
  return new Promise((resolve, reject) => {
    const trying = new Set<Socket>();
    const queue = [...addresses];
    let last: Error = new Error('there is no address');
    let next: NodeJS.Timeout | undefined;
    const finish = (won?: Dialled) => {
      clearTimeout(late);
      clearTimeout(next);
      signal?.removeEventListener('abort', onAbort);
      for (const socket of trying) if (socket !== won?.socket) socket.destroy();
      if (won) resolve(won);
      else reject(new Denial('connect', `Port ${port} of the target does not answer: ${last.message}`));
    };
    const onAbort = () => {
      last = new Error('the program gave up');
      queue.length = 0;
      finish();
    };
    const late = setTimeout(() => {
      last = new Error(`no answer in ${timeoutMs} ms`);
      queue.length = 0;
      finish();
    }, timeoutMs);
    const tryNext = () => {
      clearTimeout(next);
      const address = queue.shift();
      if (address === undefined) {
        if (trying.size === 0) finish();
        return;
      }
      const to = proxy ? { host: proxy.host, port: proxy.port } : { host: address, port };
      const socket = connect({ ...to, ...SOCKET });
      trying.add(socket);
      const failed = (error: Error) => {
        if (!trying.delete(socket)) return;
        socket.destroy();
        last = error;
        tryNext();
      };
      socket.once('error', failed);
      socket.once('connect', () => {
        const ready = proxy ? throughProxy(socket, proxy, { host: address, port }) : Promise.resolve();
        ready.then(() => {
          if (!trying.has(socket)) return;
          socket.off('error', failed);
          finish({ socket, address });
        }, failed);
      });
      next = setTimeout(tryNext, NEXT_MS);
    };
    if (signal?.aborted) onAbort();
    else {
      signal?.addEventListener('abort', onAbort, { once: true });
      tryNext();
    }
  });
}
