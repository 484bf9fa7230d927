import type { AuditEvent, AuditVerdict, CayEvent } from '@cay/sdk/protocol';

export type NewEvent = Pick<CayEvent, 'type'> &
  Partial<Pick<CayEvent, 'project' | 'sandbox' | 'key' | 'outcome' | 'data'>>;

export interface EventQuery {
  /** Events after this id. */
  after?: number;
  project?: string;
  sandbox?: string;
  limit?: number;
}

export interface AuditQuery {
  sandbox?: string;
  type?: string;
  key?: string;
  sinceMs?: number;
  untilMs?: number;
}

export interface EventRetention {
  /** How many events are kept of each project, and of those without a project. Default 1,000,000. */
  events?: number;
  /** For how long. Default: as long as their number allows. */
  ageMs?: number;
}

/**
 * The event log: what happened, to which sandbox, by which key, with which outcome. Events form one chain of
 * hashes: see `chain.ts`.
 *
 * *Two ways to append.* In a transaction, `tx.events.append` writes a *promise* of the event that is
 * committed with the change it reports; the event enters the log after the commit, exactly once, also if the
 * server is killed in between. Outside a transaction, `records.events.append` is for what changes no record
 * (a command, a refused call): it does not wait for the disk of the records.
 *
 * *Failure.* `append` outside a transaction never rejects. Events that cannot be written wait in memory, up
 * to 10,000; how many were dropped beyond that is an event too. The failure is passed to `onError`.
 *
 * *Order.* Ids have no gaps and follow the order of commits. Where several servers share a log, an event of
 * another server reaches `follow` and `listen` within a second.
 */
export interface EventRecords extends EventAppender {
  /** Oldest first, at most 1,000 unless `limit` says otherwise. */
  list(query: EventQuery): Promise<CayEvent[]>;
  /** Events after `after` (default: the last one), then each new one, until the signal. */
  follow(query: Omit<EventQuery, 'limit'> & { signal?: AbortSignal }): AsyncIterable<CayEvent>;
  /** Calls back for each new event, until the returned function is called. A throw goes to `onError`. */
  listen(listener: (event: Pick<CayEvent, 'type' | 'project' | 'sandbox'>) => void): () => void;
  lastId(): Promise<number>;
  /** The id before the first event that happened at this time or later. */
  before(atMs: number): Promise<number>;
  /** The id before the last `count` events. */
  beforeLast(count: number, query: Pick<EventQuery, 'project' | 'sandbox'>): Promise<number>;
  /** With hashes, oldest first, up to the event that is the last at the time of the call. */
  export(query: AuditQuery): AsyncIterable<AuditEvent>;
  verify(): Promise<AuditVerdict>;
  /** Removes some of the events beyond the bounds. Runs by itself. Resolves whether there may be more. */
  prune(): Promise<boolean>;
}

export interface EventAppender {
  append(event: NewEvent): Promise<void>;
}
