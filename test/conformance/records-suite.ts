/**
 * What every driver of Records has to do, run against the real database.
 *
 *     recordsSuite('sqlite', { create: async () => { … return { open, at, destroy }; } });
 */
import { afterEach, beforeEach, describe } from 'vitest';
import type { RecordsOptions } from '../../server/src/records/open-records.ts';
import type { Records } from '../../server/src/records/records.ts';
import { crashCases } from './records-crash.ts';
import { eventCases } from './records-events.ts';
import { leaseCases } from './records-leases.ts';
import { bucketCases } from './records-buckets.ts';
import { tableCases } from './records-tables.ts';
import { transactionCases } from './records-transactions.ts';

export interface RecordsPlace {
  /** What another process opens it with. */
  readonly at: { directory: string; database?: string };
  open(options?: Partial<RecordsOptions>): Promise<Records>;
  /** Everything that is stored, to look for what must not be there. */
  dump(): Promise<Buffer>;
  destroy(): Promise<void>;
}

export interface RecordsHarness {
  /** An empty place. */
  create(): Promise<RecordsPlace>;
}

/** What cases use. `records` is open before each case. */
export interface RecordsWorld {
  place: RecordsPlace;
  records: Records;
  /** Closes the records and opens them again, as a new server does. */
  reopen(options?: Partial<RecordsOptions>): Promise<Records>;
}

export function recordsSuite(name: string, harness: RecordsHarness): void {
  describe(`records ${name}`, () => {
    const world = {} as RecordsWorld;
    beforeEach(async () => {
      world.place = await harness.create();
      world.records = await world.place.open();
      world.reopen = async (options) => {
        await world.records.close();
        return (world.records = await world.place.open(options));
      };
    });
    afterEach(async () => {
      await world.records.close();
      await world.place.destroy();
    });
    transactionCases(world);
    tableCases(world);
    bucketCases(world);
    eventCases(world);
    leaseCases(world);
    crashCases(world);
  });
}
