/**
 * Records in a PostgreSQL database, for one server or several. The driver `pg` is loaded with this file, so
 * only where it is used. Connect directly or through a pooler in session mode: sessions have settings.
 */
import pg from 'pg';
import { CayError } from '@cay/sdk/protocol';
import { ignoreFailure } from '../../lib/in-background.ts';
import { isSealed, keyIdOf, type SealedBox } from '../../lib/sealed-box.ts';
import { buildRecords } from '../build-records.ts';
import { GENESIS } from '../events/chain.ts';
import { writeAnchor } from '../events/event-chain.ts';
import { openEventLog } from '../events/event-log.ts';
import type { RecordsOptions } from '../open-records.ts';
import type { Records } from '../records.ts';
import { matchingKey } from '../sealing/installation-key.ts';
import { sealedSpecs } from '../sealing/sealed-spec.ts';
import type { Sql } from '../sql/sql.ts';
import { secretTable } from '../tables/secrets.ts';
import type { TableContext } from '../tables/table-context.ts';
import { postgresChain } from './postgres-chain.ts';
import { postgresSql, type PostgresSql } from './postgres-sql.ts';
import { POSTGRES_SCHEMA } from './schema.ts';

export interface PostgresOptions extends RecordsOptions {
  /** `postgres://user:password@host:port/database`. */
  address: string;
}

const CONNECTIONS = 10;
const CONNECT_MS = 5_000;
const STATEMENT_MS = 30_000;
/**
 * Settings of every session. A sequential scan would make a transaction conflict with every write to the
 * table. Where it is off, the planner's costs are so high that a statement would be compiled, which takes
 * half a second.
 */
const SESSION = {
  default_transaction_isolation: 'serializable',
  enable_seqscan: 'off',
  jit: 'off',
  statement_timeout: `${STATEMENT_MS}`,
  idle_in_transaction_session_timeout: `${STATEMENT_MS}`,
  client_min_messages: 'warning',
};
/** Any number: the same for all servers that migrate. */
const MIGRATION_LOCK = 4_202_611;

export async function openPostgresRecords(options: PostgresOptions): Promise<Records> {
  const { directory, now, ageing, onError } = options;
  const pool = openPool(options);
  try {
    const root = postgresSql(pool, { isolation: 'SERIALIZABLE', onError });
    const chainSql = postgresSql(pool, { isolation: 'READ COMMITTED', onError });
    const { box, audit: key } = await migrate(chainSql, (sealedBy) =>
      options.box ? requireKey(options.box, sealedBy) : matchingKey(directory, sealedBy),
    );
    const context: Omit<TableContext, 'sql'> = { box, specs: sealedSpecs(box), now, ageing };
    const events = await openEventLog(postgresChain(chainSql), {
      key,
      keep: options.keepEvents,
      now,
      ageing,
      onError,
    });
    await events.flush();
    return buildRecords({
      driver: 'postgres',
      shared: true,
      context,
      root,
      transaction: (work) => root.transaction(work),
      events,
      async promise(sql, event, atMs) {
        const row = await sql.get<{ number: number }>(
          'INSERT INTO promised_events (at, event) VALUES (?, ?) RETURNING number',
          atMs,
          JSON.stringify(event),
        );
        return row!.number;
      },
      backup() {
        throw new CayError(
          'unsupported',
          'Cannot back up records in PostgreSQL: the database has its own tools',
          {
            hint: 'use pg_dump, and keep the key that secrets are sealed with',
          },
        );
      },
      async close() {
        await events.close();
        await pool.end();
      },
    });
  } catch (error) {
    await pool.end();
    throw error;
  }
}

function openPool({ address, onError }: PostgresOptions): pg.Pool {
  const pool = new pg.Pool({
    connectionString: withSession(address),
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_MS,
    // The database ends a statement first, so that this is a connection that does not answer.
    query_timeout: STATEMENT_MS + CONNECT_MS,
    keepAlive: true,
    application_name: 'cay',
    types: { getTypeParser: typeParser },
  });
  // An idle connection that is lost: the pool forgets it, and opens another when it needs one.
  pool.on('error', onError);
  // One that is lost in use: its statement rejects. Without a listener it would end the process.
  pool.on('connect', (client) => client.on('error', ignoreFailure));
  return pool;
}

/** The address with our settings of a session before those that it has. */
function withSession(address: string): string {
  if (!URL.canParse(address))
    throw new CayError('invalid_argument', 'The address of the database is not a URL', {
      hint: 'write it as postgres://user:password@host:port/database',
    });
  const url = new URL(address);
  const ours = Object.entries(SESSION).map(([name, value]) => `-c ${name}=${value}`);
  url.searchParams.set('options', [...ours, url.searchParams.get('options') ?? ''].join(' ').trim());
  return url.href;
}

const BIGINT = 20;
const NUMERIC = 1700;

/** Times and byte counts are below 2^53. */
const typeParser: typeof pg.types.getTypeParser = (oid: number, format?: 'text' | 'binary') =>
  oid === BIGINT || oid === NUMERIC
    ? (Number as never)
    : (pg.types.getTypeParser(oid, format as 'text') as never);

interface Migrated {
  box: SealedBox;
  /** Seals the chain of events. */
  audit: Uint8Array;
}

/** Brings the tables up to date and finds the key: one server at a time, all or nothing. */
function migrate(sql: PostgresSql, keyFor: (sealedBy: string | undefined) => SealedBox): Promise<Migrated> {
  return sql.transaction(async (tx) => {
    await tx.run(`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK})`);
    await tx.run('CREATE TABLE IF NOT EXISTS cay_schema (version BIGINT NOT NULL)');
    const version = (await tx.get<{ version: number }>('SELECT version FROM cay_schema'))?.version ?? 0;
    if (version > POSTGRES_SCHEMA.length)
      throw new CayError(
        'failed_precondition',
        'Cannot open the database: it was written by a newer version of Cay',
        { hint: 'run the newer version, or restore a backup made before the upgrade' },
      );
    for (const text of POSTGRES_SCHEMA.slice(version))
      for (const statement of text.split(';')) if (statement.trim()) await tx.run(statement);
    if (version === 0) await tx.run('INSERT INTO cay_schema (version) VALUES (?)', POSTGRES_SCHEMA.length);
    else await tx.run('UPDATE cay_schema SET version = ?', POSTGRES_SCHEMA.length);

    const box = keyFor(await sealedBy(tx));
    const context: TableContext = { sql: tx, box, specs: sealedSpecs(box), now: Date.now, ageing: Date.now };
    // With it the database says which key it is sealed with, before a second server creates another one.
    const audit = await secretTable(context).get('audit');
    if (!(await tx.get('SELECT id FROM event_head'))) {
      await tx.run('INSERT INTO event_head (id, hash) VALUES (?, ?)', GENESIS.id, GENESIS.hash);
      await writeAnchor(tx, GENESIS, audit);
    }
    return { box, audit };
  });
}

async function sealedBy(sql: Sql): Promise<string | undefined> {
  const rows = await sql.all<{ value: Uint8Array }>('SELECT value FROM secrets');
  const sealed = rows.map(({ value }) => Buffer.from(value).toString()).find(isSealed);
  return sealed === undefined ? undefined : keyIdOf(sealed);
}

function requireKey(box: SealedBox, sealedBy: string | undefined): SealedBox {
  if (sealedBy === undefined || sealedBy === box.keyId) return box;
  throw new CayError(
    'failed_precondition',
    `The records in the database are sealed with key ${sealedBy}, and this is key ${box.keyId}`,
    { details: { keyId: sealedBy }, hint: 'give every server of the installation the same key' },
  );
}
