import type { IncomingMessage } from 'node:http';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Principal } from '../../control/tenants/principal.ts';
import type { KeyRecords } from '../../records/keys.ts';
import { networkOf } from '../../lib/network-of.ts';
import type { RateLimit } from './rate-limit.ts';

const SUBPROTOCOL = 'cay.key.';

/**
 * The key that a request carries. A browser cannot set headers on a WebSocket, so there it is a subprotocol.
 */
export function secretOf(request: Pick<IncomingMessage, 'headers'>): string | undefined {
  const { authorization, 'x-api-key': apiKey, 'sec-websocket-protocol': protocols } = request.headers;
  const bearer = authorization === undefined ? undefined : /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  if (typeof apiKey === 'string') return apiKey;
  const offered = protocols?.split(',').map((protocol) => protocol.trim());
  return offered?.find((protocol) => protocol.startsWith(SUBPROTOCOL))?.slice(SUBPROTOCOL.length);
}

/** Whose key is asked for, and where the request comes from. */
export type Caller = Pick<IncomingMessage, 'headers'> & { socket?: { remoteAddress?: string | undefined } };

export interface Authenticator {
  /** Rejects `unauthenticated`, and `resource_exhausted` when the key is used too often. */
  authenticate(request: Caller): Principal;
}

export function authenticator(keys: KeyRecords, limit: RateLimit): Authenticator {
  return {
    authenticate(request) {
      const secret = secretOf(request);
      const key = secret === undefined ? undefined : keys.find(secret);
      if (!key) {
        throw new CayError(
          'unauthenticated',
          secret === undefined ? 'The request has no API key' : 'The API key is not known',
          {
            hint: 'send "Authorization: Bearer <key>" or "X-API-Key: <key>"',
          },
        );
      }
      const waitMs = limit.take(key.id);
      if (waitMs > 0) {
        throw new CayError('resource_exhausted', 'Too many requests with this API key', {
          details: { retryAfterMs: Math.ceil(waitMs), key: key.id, project: key.project },
          hint: 'wait as long as Retry-After says',
        });
      }
      return { project: key.project, key: key.id, role: key.role };
    },
  };
}

/**
 * Lets one address of the network come without a key that is known only so often. Whoever has one is not held
 * up by those who share its address: a proxy's is everybody's.
 */
export function limitStrangers(inner: Authenticator, limit: RateLimit): Authenticator {
  return {
    authenticate(request) {
      try {
        return inner.authenticate(request);
      } catch (error) {
        const waitMs = isCayError(error, 'unauthenticated')
          ? limit.take(networkOf(request.socket?.remoteAddress))
          : 0;
        if (waitMs === 0) throw error;
        throw new CayError(
          'resource_exhausted',
          'Too many requests without a valid API key from this address',
          {
            details: { retryAfterMs: Math.ceil(waitMs) },
            hint: 'wait as long as Retry-After says, or send a key',
          },
        );
      }
    },
  };
}

export function requireAdmin(principal: Principal): void {
  if (principal.role !== 'admin') throw new CayError('permission_denied', 'This needs an admin key');
}
