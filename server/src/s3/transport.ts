/**
 * HTTP requests to S3 servers. Where tenants choose the endpoint, addresses of this machine and of private
 * networks are refused, for the address that the connection is really made to. Redirects are not followed.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { CayError } from '@cay/sdk/protocol';
import { addressKind } from '../lib/address-kind.ts';
import { guardedLookup } from '../lib/guarded-lookup.ts';

export interface TransportOptions {
  /**
   * Whether the endpoint may be on this machine or in a private network. Link-local addresses never are
   * allowed.
   */
  allowPrivate: boolean;
  /** Whether a link-local address is allowed too: the operator's own endpoints. */
  allowAny?: boolean | undefined;
  connections: number;
  /** How long the server may be silent. */
  stallMs: number;
}

export interface Sent {
  method: string;
  /** Scheme and host. */
  url: URL;
  /** Path and query, as they are sent. */
  target: string;
  headers: Record<string, string>;
  body: readonly Uint8Array[];
  /** How long the server may be silent before it answers. Default: as usual. */
  patienceMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface Transport {
  /** Resolves with the head of the answer, whatever its status. Its body is to be read or destroyed. */
  send(request: Sent): Promise<IncomingMessage>;
  close(): void;
}

export function openTransport(options: TransportOptions): Transport {
  const settings = { keepAlive: true, maxSockets: options.connections, maxFreeSockets: options.connections };
  const agents = { 'http:': new HttpAgent(settings), 'https:': new HttpsAgent(settings) };
  return {
    send({ method, url, target, headers, body, signal, patienceMs = options.stallMs }) {
      const host = url.hostname.replace(/^\[|\]$/g, '');
      if (isIP(host) !== 0 && !isAllowed(host, options)) throw refusal(url.host, options);
      const { promise, resolve: done, reject } = Promise.withResolvers<IncomingMessage>();
      const isTls = url.protocol === 'https:';
      const outgoing = (isTls ? httpsRequest : httpRequest)(url, {
        method,
        path: target,
        headers,
        agent: isTls ? agents['https:'] : agents['http:'],
        ...(!options.allowAny && { lookup: lookupFor(url.host, options) }),
        timeout: patienceMs,
        ...(signal && { signal }),
      });
      outgoing.on('timeout', () =>
        outgoing.destroy(Object.assign(new Error(`silent for ${patienceMs} ms`), { code: 'ETIMEDOUT' })),
      );
      outgoing.on('error', reject);
      outgoing.on('response', (answer) => {
        // From here on the reader of the body decides how long it waits.
        outgoing.setTimeout(0);
        done(answer);
      });
      for (const part of body) outgoing.write(part);
      outgoing.end();
      return promise;
    },
    close() {
      for (const agent of Object.values(agents)) agent.destroy();
    },
  };
}

/** The operator's own endpoints are looked up as the system does. */
function lookupFor(host: string, options: TransportOptions): LookupFunction {
  return guardedLookup({
    isAllowed: (address) => isAllowed(address, options),
    refusal: () => refusal(host, options),
    system: options.allowPrivate,
  });
}

/**
 * Refuses an endpoint whose literal address is not allowed, before anything is made. Names are checked when
 * used.
 */
export function requireAllowedEndpoint(endpoint: URL, options: Pick<TransportOptions, 'allowPrivate'>): void {
  const host = endpoint.hostname.replace(/^\[|\]$/g, '');
  const isLocal = host === 'localhost' || host.endsWith('.localhost');
  if (isIP(host) !== 0 ? !isAllowed(host, options) : isLocal && !options.allowPrivate)
    throw refusal(endpoint.host, options);
}

function isAllowed(
  address: string,
  { allowPrivate, allowAny = false }: Pick<TransportOptions, 'allowPrivate' | 'allowAny'>,
): boolean {
  const kind = addressKind(address);
  return allowAny || kind === 'public' || (allowPrivate && (kind === 'private' || kind === 'loopback'));
}

function refusal(host: string, { allowPrivate }: Pick<TransportOptions, 'allowPrivate'>): CayError {
  return new CayError('permission_denied', `Buckets may not be at "${host.slice(0, 100)}"`, {
    hint: allowPrivate
      ? 'its address is one that no bucket may have'
      : 'the operator names endpoints on private networks with --allow-bucket-endpoint',
    details: { endpoint: host.slice(0, 100) },
  });
}
