/** Audit events of calls that failed and of calls that were refused for their credentials. */
import { CayError } from '@cay/sdk/protocol';
import { isAudited, markAudited } from '../../control/events/audited-errors.ts';
import type { EventVerbs } from '../../control/events/event-verbs.ts';
import { networkOf } from '../../lib/network-of.ts';
import { logThrottle } from '../../lib/log-throttle.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { Authenticator, Caller } from './authenticate.ts';
import type { Trace } from './trace.ts';

export interface CallAudit {
  /**
   * Writes an event for refused keys. Anonymous clients can cause any number, so they are counted and written
   * once a minute.
   */
  authenticator(inner: Authenticator): Authenticator;
  /** Writes an event, as rarely, for a request to a sandbox without a valid token. */
  turnedAway(request: Caller, error: CayError, sandbox?: { id: string; project: string }): void;
  /**
   * Writes an event for a failed call that would have changed something. Each key has a bounded number of
   * events a minute; the next event says how many were left out.
   */
  failed(trace: Trace, error: unknown): void;
}

const REFUSED_EVERY_MS = 60_000;
/** Events of failed calls for one key in a minute. The rest are counted. */
const FAILED_A_MINUTE = 60;
export function callAudit(events: Pick<EventVerbs, 'append'>): CallAudit {
  const refusals = logThrottle({ everyMs: REFUSED_EVERY_MS });
  const failures = logThrottle({ everyMs: REFUSED_EVERY_MS, through: FAILED_A_MINUTE });

  async function refused(request: Caller, error: CayError): Promise<void> {
    const { key = null, project = null } = error.details as { key?: string; project?: string };
    const from = request.socket?.remoteAddress ?? null;
    const { first, held } = refusals.happens(`${error.code} ${key ?? networkOf(from ?? undefined)}`);
    if (!first) return;
    await events.append({
      type: 'key.refused',
      project,
      key,
      outcome: error.code,
      data: { from, ...(held > 0 && { alsoRefused: held }) },
    });
  }

  /** The answer does not wait for it. */
  function append(event: Parameters<EventVerbs['append']>[0]): void {
    inBackground(events.append(event), ignoreFailure);
  }

  return {
    authenticator: (inner) => ({
      async authenticate(request, roles) {
        try {
          return await inner.authenticate(request, roles);
        } catch (error) {
          if (error instanceof CayError) await refused(request, error);
          throw markAudited(error);
        }
      },
    }),
    turnedAway(request, error, sandbox) {
      markAudited(error);
      const from = request.socket?.remoteAddress ?? null;
      const { first, held } = refusals.happens(`token ${sandbox?.id} ${networkOf(from ?? undefined)}`);
      if (!first) return;
      const data = { from, ...(held > 0 && { alsoRefused: held }) };
      append({
        type: 'token.refused',
        project: sandbox?.project ?? null,
        key: null,
        sandbox: sandbox?.id ?? null,
        outcome: error.code,
        data,
      });
    },
    failed(trace, error) {
      if (isAudited(error)) return;
      const outcome = error instanceof CayError ? error.code : 'internal';
      if (outcome === 'cancelled') return;
      const { sandbox, principal } = trace;
      // Without a known key, one event for each kind of failure; with one, a bounded number of any kind.
      const { first, held } = principal
        ? failures.happens(`${principal.project} ${principal.key}`)
        : refusals.happens(`${outcome} ${trace.route}`);
      if (!first) return;
      const known = sandbox?.startsWith('sbx_') ? sandbox.slice(0, 80) : null;
      append({
        type: 'call.failed',
        project: principal?.project ?? null,
        key: principal?.key ?? null,
        sandbox: known,
        outcome,
        data: {
          operation: trace.route,
          ...(sandbox !== undefined && known === null && { sandbox: sandbox.slice(0, 80) }),
          ...(held > 0 && { alsoFailed: held }),
        },
      });
    },
  };
}
