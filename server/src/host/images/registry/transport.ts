/**
 * Requests to registries. Tenants choose the names of images, and so whom the server talks to: addresses
 * of this machine and of private networks are refused unless the operator has named the registry, at every
 * redirect again, and for the address that the connection is really made to.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import { CayError } from '@cay/sdk/protocol';
import { reachHint, systemReason } from '@cay/sdk/system-error';
import { addressKind } from '../../../lib/address-kind.ts';
import { guardedLookup } from '../../../lib/guarded-lookup.ts';

export interface TransportOptions {
  /** Hosts, with their ports if they are not usual, that may be on this machine or in a private network. */
  privateHosts: ReadonlySet<string>;
  /** Hosts that are spoken to without TLS. */
  insecureHosts: ReadonlySet<string>;
}

export interface GetOptions {
  headers?: Record<string, string>;
  /** Makes it a POST of this form, which is not redirected. */
  form?: URLSearchParams;
  signal?: AbortSignal;
}

export interface Transport {
  /**
   * The answer after redirects, whatever its status; its body is to be read or destroyed. Rejects
   * `permission_denied` for an address that may not be reached, and `unavailable` if nobody answers.
   */
  get(url: URL, options?: GetOptions): Promise<IncomingMessage>;
  close(): void;
}

const REDIRECTS = [301, 302, 303, 307, 308];
const MOST_REDIRECTS = 5;
/** Without a byte. */
const STALL_MS = 30_000;
const CONNECTIONS = 8;

export function openTransport(options: TransportOptions): Transport {
  const agents = {
    'http:': new HttpAgent({ keepAlive: true, maxSockets: CONNECTIONS }),
    'https:': new HttpsAgent({ keepAlive: true, maxSockets: CONNECTIONS }),
  };
  const mayBePrivate = (url: URL) =>
    options.privateHosts.has(url.host) || options.insecureHosts.has(url.host);

  function once(url: URL, { headers, form, signal }: GetOptions): Promise<IncomingMessage> {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const allowPrivate = mayBePrivate(url);
    if (isIP(host) !== 0 && !isAllowed(host, allowPrivate)) throw refusal(url.host);
    return new Promise((done, reject) => {
      const isTls = url.protocol === 'https:';
      const outgoing = (isTls ? httpsRequest : httpRequest)(url, {
        method: form ? 'POST' : 'GET',
        headers: {
          'user-agent': 'cay',
          ...headers,
          ...(form && { 'content-type': 'application/x-www-form-urlencoded' }),
        },
        agent: isTls ? agents['https:'] : agents['http:'],
        lookup: guardedLookup({
          isAllowed: (address) => isAllowed(address, allowPrivate),
          refusal: () => refusal(url.host),
          system: allowPrivate,
        }),
        timeout: STALL_MS,
        ...(signal && { signal }),
      });
      outgoing.on('timeout', () => outgoing.destroy(silent(url.host)));
      outgoing.on('error', (error) => reject(signal?.aborted ? error : unreachable(url.host, error)));
      outgoing.on('response', done);
      outgoing.end(form?.toString());
    });
  }

  return {
    async get(first, given = {}) {
      let [url, headers] = [first, given.headers ?? {}];
      for (let redirects = 0; ; redirects++) {
        requireProtocol(url, options.insecureHosts);
        const answer = await once(url, { ...given, headers });
        const { statusCode = 0 } = answer;
        const { location } = answer.headers;
        if (!REDIRECTS.includes(statusCode) || location === undefined || given.form) return answer;
        answer.destroy();
        if (redirects === MOST_REDIRECTS || !URL.canParse(location, url.href))
          throw new CayError('unavailable', `The registry "${first.host}" redirects to nowhere`);
        const next = new URL(location, url);
        if (next.host !== url.host || next.protocol !== url.protocol) {
          // The credentials are for the first host, not for the target of the redirect.
          const { authorization: _authorization, ...rest } = headers;
          headers = rest;
        }
        url = next;
      }
    },
    close() {
      for (const agent of Object.values(agents)) agent.destroy();
    },
  };
}

function requireProtocol(url: URL, insecure: ReadonlySet<string>): void {
  if (url.username !== '' || url.password !== '')
    throw new CayError('permission_denied', `Cannot go to "${url.host}": its address has credentials in it`);
  if (url.protocol === 'https:' || (url.protocol === 'http:' && insecure.has(url.host))) return;
  throw new CayError('permission_denied', `Cannot reach "${url.host}" without TLS`, {
    hint: 'the operator names registries without TLS with --insecure-registry',
  });
}

function isAllowed(address: string, allowPrivate: boolean): boolean {
  const kind = addressKind(address);
  return kind === 'public' || (allowPrivate && (kind === 'private' || kind === 'loopback'));
}

function refusal(host: string): CayError {
  return new CayError('permission_denied', `Images may not come from "${host.slice(0, 100)}"`, {
    hint: 'the operator names registries on private networks with --allow-registry',
    details: { registry: host.slice(0, 100) },
  });
}

function silent(host: string): CayError {
  return new CayError('unavailable', `"${host}" has sent nothing for ${STALL_MS / 1000} seconds`);
}

function unreachable(host: string, cause: unknown): CayError {
  if (cause instanceof CayError) return cause;
  return new CayError('unavailable', `The registry "${host}" does not answer: ${systemReason(cause)}`, {
    cause,
    hint: reachHint(cause, 'the name of the image'),
    details: { registry: host.slice(0, 100) },
  });
}
