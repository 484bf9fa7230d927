/** How the command line speaks to a server: Node's own HTTP, and WebSockets of the package "ws". */
import { createRequire } from 'node:module';
import type { ConnectOptions } from '@cay/sdk/client';
import type * as Ws from 'ws';
import { nodeFetch } from './node-fetch.ts';
import { trusting } from './trusting.ts';

/** One message is a piece of a command's output or of a tunnel, which are far smaller. */
const MAX_MESSAGE = 16 * 1024 * 1024;

type Socket = NonNullable<ConnectOptions['WebSocket']>;

/** Loaded when the first one is opened: most verbs open none. It can pause, so a slow reader holds little. */
function openSocket(url: string, protocols: string[], certificate?: string): Ws.WebSocket {
  const { WebSocket } = createRequire(import.meta.url)('ws') as typeof Ws;
  return new WebSocket(url, protocols, {
    perMessageDeflate: false,
    maxPayload: MAX_MESSAGE,
    ...(url.startsWith('wss:') && trusting(certificate)),
  });
}

const fetchTrusting =
  (certificate?: string): typeof nodeFetch =>
  (address, init) =>
    nodeFetch(address, init, certificate);

/** `certificate` is a file with what the server shows, to be trusted beside the usual authorities. */
export function transportOptions(
  certificate?: string,
): Pick<ConnectOptions, 'fetch' | 'WebSocket' | 'iterableBodies'> {
  return {
    fetch: fetchTrusting(certificate) as unknown as typeof fetch,
    iterableBodies: true,
    // A constructor that returns an object gives that object. "ws" has all that the client uses.
    WebSocket: function (url: string, protocols: string[]) {
      return openSocket(url, protocols, certificate);
    } as unknown as Socket,
  };
}
