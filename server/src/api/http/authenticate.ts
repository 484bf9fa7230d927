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
 * Requests without a credential that is right, of each network address. Keys, access tokens and signatures are
 * looked at first, which costs microseconds: a client that has a right one is never held up by those who share
 * its address, since that of a proxy is everybody's.
 */
export interface Strangers {
  /** Throws `resource_exhausted` for an address that has come too often. */
  requireTurn(request: Caller): void;
}

export function openStrangers(limit: RateLimit): Strangers {
  return {
    requireTurn(request) {
      const waitMs = limit.take(networkOf(request.socket?.remoteAddress));
      if (waitMs === 0) return;
      throw new CayError(
        'resource_exhausted',
        'Too many requests without a valid key, token or signature from this address',
        {
          details: { retryAfterMs: Math.ceil(waitMs) },
          hint: 'wait as long as Retry-After says, or send a valid one',
        },
      );
    },
  };
}

/** Lets one network address come without a key that is known only so often. */
export function limitStrangers(inner: Authenticator, strangers: Strangers): Authenticator {
  return {
    authenticate(request) {
      try {
        return inner.authenticate(request);
      } catch (error) {
        if (isCayError(error, 'unauthenticated')) strangers.requireTurn(request);
        throw error;
      }
    },
  };
}

export function requireAdmin(principal: Principal): void {
  if (principal.role !== 'admin') throw new CayError('permission_denied', 'This needs an admin key');
}
