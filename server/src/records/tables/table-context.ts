import type { SealedBox } from '../../lib/sealed-box.ts';
import type { SealedSpecs } from '../sealing/sealed-spec.ts';
import type { Sql } from '../sql/sql.ts';

/** What a table is built on. The tables of a transaction differ from the others in `sql` alone. */
export interface TableContext {
  readonly sql: Sql;
  /** Seals secrets with the installation's key. */
  readonly box: SealedBox;
  /** Shared by all transactions, since it caches opened environments. */
  readonly specs: SealedSpecs;
  /** The time of day. */
  now(): number;
  /** Measures ages: a clock that jumps forward makes nothing old. Whole milliseconds. */
  ageing(): number;
}
