/** How the command line speaks to a server: Node's own `fetch`, and WebSockets of the package "ws". */
import { createRequire } from 'node:module';
import type { ConnectOptions } from '@cay/sdk/client';
import type * as Ws from 'ws';

/** One message is a piece of a command's output or of a tunnel, which are far smaller. */
const MAX_MESSAGE = 16 * 1024 * 1024;

type Fetch = NonNullable<ConnectOptions['fetch']>;
type Socket = NonNullable<ConnectOptions['WebSocket']>;

let patient: object | undefined;

const patientFetch: Fetch = (input, init) =>
  fetch(input, { ...init, ...((patient ??= patientDispatcher()) && { dispatcher: patient }) } as RequestInit);

/**
 * Node's `fetch` gives up after five minutes without an answer. A server may need longer: it pulls an image
 * first, or packs a large memory image. Reading the global dispatcher is the only way to Node's own Agent.
 */
export function patientDispatcher(): object | undefined {
  // The dispatcher is made when `fetch` is looked at for the first time.
  void globalThis.fetch;
  const known = (globalThis as Record<symbol, unknown>)[Symbol.for('undici.globalDispatcher.1')];
  if (typeof known !== 'object' || known === null) return undefined;
  const Agent = known.constructor as new (options: object) => object;
  return new Agent({ headersTimeout: 0, bodyTimeout: 0 });
}

/** Loaded when the first one is opened: most verbs open none. It can pause, so a slow reader holds little. */
function openSocket(url: string, protocols: string[]): Ws.WebSocket {
  const { WebSocket } = createRequire(import.meta.url)('ws') as typeof Ws;
  return new WebSocket(url, protocols, { perMessageDeflate: false, maxPayload: MAX_MESSAGE });
}

export const transportOptions: Pick<ConnectOptions, 'fetch' | 'WebSocket'> = {
  fetch: patientFetch,
  // A constructor that returns an object gives that object. "ws" has all that the client uses.
  WebSocket: function (url: string, protocols: string[]) {
    return openSocket(url, protocols);
  } as unknown as Socket,
};
