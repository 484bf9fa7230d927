import type { CayEvent } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { Link, StoredEvent } from './chain.ts';
import type { ChainDriver } from './event-chain.ts';
import type { EventRecords } from './events.ts';
import { showEvent, WINDOW } from './read-events.ts';

/** Those who follow the log. Each gets every event once, in the order of the chain. */
export interface EventReaders extends Pick<EventRecords, 'follow' | 'listen'> {
  /** This process has appended these events, and `end` is the end of the chain. */
  appended(rows: readonly StoredEvent[], end: Link): Promise<void>;
  close(): void;
}

export interface EventReadersOptions extends Pick<EventRecords, 'list' | 'lastId'> {
  driver: Pick<ChainDriver, 'sql' | 'exclusive'>;
  /** The end of the chain when the log is opened. */
  head: Link;
  onError(error: unknown): void;
}

/** How soon events of other servers are seen. */
const POLL_MS = 300;

export function eventReaders({ driver, head, list, lastId, onError }: EventReadersOptions): EventReaders {
  const { sql, exclusive } = driver;
  const live = new Broadcast<CayEvent>();
  const listeners = new Set<(event: Pick<CayEvent, 'type' | 'project' | 'sandbox'>) => void>();
  /** The last event that readers have got. */
  let announced = head.id;

  const hasReaders = () => live.hasReaders || listeners.size > 0;

  function announce(row: StoredEvent): void {
    announced = row.id;
    if (live.hasReaders) live.send(showEvent(row));
    for (const listener of listeners) listener(row);
  }

  /** Announces events in the order of the chain, those of other servers among them. */
  async function tail(): Promise<void> {
    for (;;) {
      const rows = await sql.all<StoredEvent>(
        'SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?',
        announced,
        WINDOW,
      );
      for (const row of rows) if (row.id > announced) announce(row);
      if (rows.length < WINDOW) return;
    }
  }

  const polling = exclusive
    ? undefined
    : setInterval(() => {
        if (hasReaders()) inBackground(tail(), ignoreFailure);
      }, POLL_MS).unref();

  return {
    async appended(rows, end) {
      if (exclusive) rows.forEach(announce);
      else if (hasReaders()) await tail();
      else announced = end.id;
    },

    async *follow({ after, project, sandbox, signal }) {
      // Subscribed before the log is read, so that no event falls between the two.
      const isFirst = !hasReaders();
      const arriving = live.subscribe({ signal });
      const end = await lastId();
      if (isFirst) announced = Math.max(announced, end);
      let last = after ?? end;
      for (;;) {
        const page = await list({ after: last, project, sandbox });
        yield* page;
        if (page.length === 0) break;
        last = page.at(-1)!.id;
      }
      for await (const event of arriving) {
        if (
          event.id <= last ||
          (project !== undefined && event.project !== project) ||
          (sandbox !== undefined && event.sandbox !== sandbox)
        )
          continue;
        yield event;
      }
    },
    listen(listener) {
      const guarded: typeof listener = (event) => {
        try {
          listener(event);
        } catch (error) {
          onError(error);
        }
      };
      listeners.add(guarded);
      return () => listeners.delete(guarded);
    },

    close() {
      clearInterval(polling);
      live.close();
    },
  };
}
