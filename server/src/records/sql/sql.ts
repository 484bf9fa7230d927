/**
 * The small part of SQL databases that the tables in `records/tables/` are written on, so that each table is
 * written once. A driver implements `Sql` for its connections and `Dialect` for what its database spells
 * differently.
 *
 * A statement is written with `?` for each value, in the SQL that SQLite and PostgreSQL share: `coalesce`,
 * `CASE`, `ON CONFLICT … DO`, `RETURNING`, quoted aliases for names in camel case. Booleans are 0 and 1,
 * times are milliseconds, JSON is text, bytes are bytes. Sums are cast to BIGINT.
 */
export type SqlValue = string | number | null | Uint8Array;

export interface Sql {
  readonly dialect: Dialect;
  /** The first row. */
  get<T>(text: string, ...values: SqlValue[]): Promise<T | undefined>;
  all<T>(text: string, ...values: SqlValue[]): Promise<T[]>;
  /** Resolves how many rows changed. */
  run(text: string, ...values: SqlValue[]): Promise<number>;
  /** All or nothing. Inside a transaction it joins that one. */
  transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T>;
}

export interface Dialect {
  /** The column that orders the rows of a table as they were inserted. */
  readonly insertionOrder: string;
  /** The database's clock, in milliseconds since 1970. */
  readonly nowMs: string;
  /** Ends a SELECT so that no other transaction changes the row until this one has ended. */
  readonly lockRow: string;
  /** Whether an object of strings in a JSON column has a member; two placeholders: its key, its value. */
  hasMember(column: string): string;
  /** A number or a text in a JSON column, or NULL. The path is ours, never a caller's. */
  jsonNumber(column: string, ...path: string[]): string;
  jsonText(column: string, ...path: string[]): string;
}

/** For LIMIT where there is none. */
export const NO_LIMIT = Number.MAX_SAFE_INTEGER;
