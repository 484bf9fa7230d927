/**
 * The command line's side of a server: one connection, and sandboxes by id, name or the beginning of an id.
 */
import {
  CayError,
  Sandbox,
  connect,
  isCayError,
  type ConnectOptions,
  type CreateSandboxInput,
  type Transport,
} from '@cay/sdk/client';
import { addressOf, type CommonOptions } from './settings.ts';
import { httpFetch } from './transport/http-fetch.ts';
import { ThinWebSocket } from './transport/web-socket.ts';

export interface Client {
  readonly transport: Transport;
  readonly options: ConnectOptions;
  create(request: CreateSandboxInput): Promise<Sandbox>;
  /** Rejects `not_found`, or `invalid_argument` if several sandboxes begin so. */
  sandbox(ref: string): Promise<Sandbox>;
}

export function openClient(options: CommonOptions): Client {
  const { url, apiKey } = addressOf(options);
  // Both have what the client uses, and no more.
  const light = { fetch: httpFetch, WebSocket: ThinWebSocket } as unknown as Pick<
    ConnectOptions,
    'fetch' | 'WebSocket'
  >;
  const connectOptions: ConnectOptions = { url, apiKey, ...light };
  return {
    transport: connect(connectOptions),
    options: connectOptions,
    create: (request) => Sandbox.create(request, connectOptions),
    async sandbox(ref) {
      try {
        return await Sandbox.connect(ref, connectOptions);
      } catch (error) {
        if (!isCayError(error, 'not_found') && !isCayError(error, 'invalid_argument')) throw error;
        return byPrefix(ref, connectOptions, error);
      }
    },
  };
}

async function byPrefix(ref: string, options: ConnectOptions, unknown: CayError): Promise<Sandbox> {
  const found: Sandbox[] = [];
  const prefix = ref.startsWith('sbx_') ? ref : `sbx_${ref}`;
  for await (const sandbox of Sandbox.list(options)) if (sandbox.id.startsWith(prefix)) found.push(sandbox);
  if (found.length === 1) return found[0]!;
  if (found.length === 0) {
    throw new CayError('not_found', `Sandbox "${ref}" does not exist`, {
      cause: unknown,
      hint: '"cay ls" shows those that do',
    });
  }
  throw new CayError('invalid_argument', `"${ref}" is the beginning of ${found.length} sandboxes' ids`, {
    hint: `give more of it: ${found
      .slice(0, 4)
      .map(({ id }) => id)
      .join(', ')}`,
  });
}
