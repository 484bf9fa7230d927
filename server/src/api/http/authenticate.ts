import type { IncomingMessage } from 'node:http';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { KeyVerbs } from '../../control/tenants/key-verbs.ts';
import type { Principal, Role } from '../../control/tenants/principal.ts';
import { networkOf } from '../../lib/network-of.ts';
import type { RateLimit } from './rate-limit.ts';

const SUBPROTOCOL = 'cay.key.';

/**
 * The API key of a request. A browser cannot set headers on a WebSocket, so there the key is a subprotocol.
 */
export function secretOf(request: Pick<IncomingMessage, 'headers'>): string | undefined {
  const { authorization, 'x-api-key': apiKey, 'sec-websocket-protocol': protocols } = request.headers;
  const bearer = authorization === undefined ? undefined : /^Bearer +(\S+)$/i.exec(authorization)?.[1];
  if (bearer !== undefined) return bearer;
  if (typeof apiKey === 'string') return apiKey;
  const offered = protocols?.split(',').map((protocol) => protocol.trim());
  return offered?.find((protocol) => protocol.startsWith(SUBPROTOCOL))?.slice(SUBPROTOCOL.length);
}

/** A request as far as authentication reads it. */
export type Caller = Pick<IncomingMessage, 'headers'> & { socket?: { remoteAddress?: string | undefined } };

export interface Authenticator {
  /**
   * Rejects `unauthenticated` without a known key, `resource_exhausted` when the key is used too often, and
   * `permission_denied` for a role that is not among `roles`. By default a key that may only read metrics is
   * refused.
   */
  authenticate(request: Caller, roles?: readonly Role[]): Promise<Principal>;
}

const USUAL_ROLES: readonly Role[] = ['admin', 'member'];

export function authenticator(keys: Pick<KeyVerbs, 'authenticate'>, limit: RateLimit): Authenticator {
  return {
    async authenticate(request, roles = USUAL_ROLES) {
      const secret = secretOf(request);
      const principal = secret === undefined ? undefined : await keys.authenticate(secret);
      if (!principal) {
        throw new CayError(
          'unauthenticated',
          secret === undefined ? 'The request has no API key' : 'The API key is not known',
          {
            hint: 'send "Authorization: Bearer <key>" or "X-API-Key: <key>"',
          },
        );
      }
      const { key, project, role } = principal;
      const waitMs = limit.take(key!);
      if (waitMs > 0) {
        throw new CayError('resource_exhausted', 'Too many requests with this API key', {
          details: { retryAfterMs: Math.ceil(waitMs), key, project },
          hint: 'wait as long as Retry-After says',
        });
      }
      if (!roles.includes(role)) throw wrongRole(role, roles);
      return principal;
    },
  };
}

function wrongRole(role: Role, roles: readonly Role[]): CayError {
  if (role === 'metrics')
    return new CayError('permission_denied', 'This key may read /metrics and nothing else', {
      hint: 'use a key with the role "member" or "admin"',
    });
  return new CayError(
    'permission_denied',
    roles.includes('metrics')
      ? 'This needs an admin key, or one with the role "metrics"'
      : 'This needs an admin key',
  );
}

/**
 * Limits requests without a valid credential, by network address. Keys, access tokens and signatures are
 * checked first, which takes microseconds, so a client with a valid one is never held up by others that share
 * its address, such as those behind the same proxy.
 */
export interface AnonymousClients {
  /** Throws `resource_exhausted` for an address that has sent too many requests. */
  requireTurn(request: Caller): void;
}

export function openAnonymousClients(limit: RateLimit): AnonymousClients {
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

/** Limits requests without a known key. */
export function limitAnonymous(inner: Authenticator, anonymous: AnonymousClients): Authenticator {
  return {
    async authenticate(request, roles) {
      try {
        return await inner.authenticate(request, roles);
      } catch (error) {
        if (isCayError(error, 'unauthenticated')) anonymous.requireTurn(request);
        throw error;
      }
    },
  };
}
