import { openClock } from '../lib/clock.ts';
import type { SealedBox } from '../lib/sealed-box.ts';
import type { EventRetention } from './events/events.ts';
import type { Records } from './records.ts';

export interface RecordsOptions {
  /** The data directory: the SQLite files, and the key file where no other key is given. */
  directory: string;
  /** Seals secrets. Default: the key that is given for the data directory. */
  box?: SealedBox | undefined;
  keepEvents?: EventRetention | undefined;
  now(): number;
  /** The clock that ages are measured by, in whole milliseconds: see `lib/clock.ts`. */
  ageing(): number;
  /** Called with failures that no caller is waiting for. */
  onError(error: unknown): void;
}

/**
 * Opens the records: a `postgres://` address is a PostgreSQL database, none is SQLite in the data directory.
 * Only the driver that is used is loaded.
 */
export async function openRecords(
  options: Pick<RecordsOptions, 'directory'> & Partial<RecordsOptions> & { database?: string | undefined },
): Promise<Records> {
  const clock = openClock(options.now ? { now: options.now } : {});
  const all: RecordsOptions = {
    now: clock.now,
    // A clock of a test does not run by itself.
    ageing: options.now ?? (() => Math.floor(clock.ageing())),
    onError: () => {},
    ...options,
  };
  if (options.database === undefined) return (await import('./sqlite/open-sqlite.ts')).openSqliteRecords(all);
  return (await import('./postgres/open-postgres.ts')).openPostgresRecords({
    ...all,
    address: options.database,
  });
}
