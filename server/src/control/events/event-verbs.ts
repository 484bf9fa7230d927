import type { AuditEvent, AuditVerdict, CayEvent } from '@cay/sdk/protocol';
import type { AuditQuery, EventRecords, NewEvent } from '../../records/events/events.ts';
import type { KeyRecords } from '../../records/tables/keys.ts';
import { requireAdmin, type Principal } from '../tenants/principal.ts';

export interface EventRange {
  /**
   * Events after this id. Without it, `sinceMs` or `tail`, a list begins with the first, a follower with the
   * next.
   */
  after?: number | undefined;
  /** Events from this time on. */
  sinceMs?: number | undefined;
  /** The last so many events, and what follows them. */
  tail?: number | undefined;
  /** A sandbox's id. A removed sandbox still has its events. */
  sandbox?: string | undefined;
}

/** Events of the principal's project. Each has its outcome, and as `actor` the name of the key that asked. */
export interface EventVerbs {
  /** Oldest first. `last` is the id to continue after. */
  list(
    principal: Principal,
    range: EventRange & { limit: number },
  ): Promise<{ events: CayEvent[]; last: number }>;
  /** Kept events of the range, then every further one until the signal. */
  follow(principal: Principal, range: EventRange & { signal: AbortSignal }): AsyncIterable<CayEvent>;
  /** Checks the chain of hashes of all projects' events. Needs an admin. */
  verify(principal: Principal): Promise<AuditVerdict>;
  /** Events of all projects with their hashes, oldest first. Needs an admin. */
  export(principal: Principal, query: AuditQuery): AsyncIterable<AuditEvent>;
  /**
   * Records what only the surface that answers a caller sees: calls that it refused or that failed. Resolves
   * when it is in the log, and never rejects.
   */
  append(event: NewEvent): Promise<void>;
}

export interface EventVerbParts {
  events: EventRecords;
  keys: Pick<KeyRecords, 'get'>;
}

/** Names of keys that are remembered. */
const MAX_NAMES = 1000;

export function eventVerbs({ events, keys }: EventVerbParts): EventVerbs {
  const names = new Map<string, string>();

  async function nameOf(id: string): Promise<string> {
    const known = names.get(id);
    if (known !== undefined) return known;
    // A key that was revoked has its id left.
    const name = (await keys.get(id))?.name ?? id;
    if (names.size >= MAX_NAMES) names.clear();
    names.set(id, name);
    return name;
  }

  const withActor = async (event: CayEvent): Promise<CayEvent> => ({
    ...event,
    actor: event.key === null ? null : await nameOf(event.key),
  });

  /** The id after which the range begins. The latest beginning wins. */
  async function beginningOf(
    { project }: Principal,
    { after, sinceMs, tail, sandbox }: EventRange,
  ): Promise<number | undefined> {
    const begins = [
      after,
      sinceMs === undefined ? undefined : await events.before(sinceMs),
      tail === undefined ? undefined : await events.beforeLast(tail, { project, sandbox }),
    ].filter((id) => id !== undefined);
    return begins.length === 0 ? undefined : Math.max(...begins);
  }

  return {
    async list(principal, { limit, ...range }) {
      const after = await beginningOf(principal, range);
      const { project } = principal;
      const found = await events.list({ after, project, sandbox: range.sandbox, limit });
      const shown: CayEvent[] = [];
      for (const event of found) shown.push(await withActor(event));
      return { events: shown, last: found.at(-1)?.id ?? after ?? 0 };
    },
    async *follow(principal, { signal, ...range }) {
      const after = await beginningOf(principal, range);
      const { project } = principal;
      for await (const event of events.follow({ after, project, sandbox: range.sandbox, signal }))
        yield await withActor(event);
    },
    async verify(principal) {
      requireAdmin(principal);
      return events.verify();
    },
    export(principal, query) {
      requireAdmin(principal);
      return events.export(query);
    },
    append: (event) => events.append(event),
  };
}
