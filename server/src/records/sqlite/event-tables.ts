/** The tables of the event log: events, the anchor and the gaps of pruned events, checkpoints. */
import type { DatabaseSync } from 'node:sqlite';
import {
  CHECKPOINT_EVERY,
  GENESIS,
  chainHash,
  sealOf,
  type Link,
  type StoredEvent,
} from '../events/chain.ts';

const EVENTS_VERSION = 1;

const UNSEALED = new Uint8Array(0);

/** Creates the tables, or migrates those of an earlier version. The key seals anchor and checkpoints. */
export function prepareTables(sqlite: DatabaseSync, key: Uint8Array | undefined): void {
  migrate(sqlite, key);
  sqlite.exec(
    'CREATE TABLE IF NOT EXISTS gaps (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, hash BLOB NOT NULL, seal BLOB NOT NULL) STRICT',
  );
  // A key reads the events of its project only.
  sqlite.exec('CREATE INDEX IF NOT EXISTS events_project ON events (project, id)');
}

function migrate(sqlite: DatabaseSync, key: Uint8Array | undefined): void {
  // The number of the last promised event that was written: see open-sqlite.ts.
  sqlite.exec('CREATE TABLE IF NOT EXISTS kept_promise (number INTEGER NOT NULL) STRICT');
  const { user_version: version } = sqlite.prepare('PRAGMA user_version').get() as { user_version: number };
  if (version >= EVENTS_VERSION) return;
  const old = sqlite.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'events'").get() !== undefined;
  sqlite.exec('BEGIN IMMEDIATE');
  try {
    if (old)
      sqlite.exec(
        "ALTER TABLE events ADD COLUMN outcome TEXT NOT NULL DEFAULT 'ok'; ALTER TABLE events ADD COLUMN hash BLOB",
      );
    sqlite.exec(`
      CREATE TABLE IF NOT EXISTS events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        type TEXT NOT NULL,
        project TEXT,
        sandbox TEXT,
        key TEXT,
        outcome TEXT NOT NULL,
        data TEXT NOT NULL,
        hash BLOB NOT NULL
      ) STRICT;
      CREATE INDEX IF NOT EXISTS events_sandbox ON events (sandbox, id);
      CREATE TABLE anchor (id INTEGER NOT NULL, hash BLOB NOT NULL, seal BLOB NOT NULL) STRICT;
      CREATE TABLE checkpoints (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, hash BLOB NOT NULL, seal BLOB NOT NULL) STRICT;
    `);
    chainOld(sqlite, key);
    sqlite.exec(`PRAGMA user_version = ${EVENTS_VERSION}; COMMIT`);
  } catch (error) {
    if (sqlite.isTransaction) sqlite.exec('ROLLBACK');
    throw error;
  }
}

/** Events from before there was a chain become its beginning. */
function chainOld(sqlite: DatabaseSync, key: Uint8Array | undefined): void {
  const first = (sqlite.prepare('SELECT min(id) AS id FROM events').get() as { id: number | null }).id ?? 1;
  let link: Link = { id: first - 1, hash: GENESIS.hash };
  writeAnchor(sqlite, link, key);
  const update = sqlite.prepare('UPDATE events SET hash = ? WHERE id = ?');
  const page = sqlite.prepare('SELECT * FROM events WHERE id > ? ORDER BY id LIMIT 1000');
  for (let rows = page.all(link.id); rows.length > 0; rows = page.all(link.id)) {
    for (const row of rows as unknown as StoredEvent[]) {
      link = { id: row.id, hash: chainHash(link.hash, row) };
      update.run(link.hash, link.id);
      if (link.id % CHECKPOINT_EVERY === 0) writeCheckpoint(sqlite, link, row.at, key);
    }
  }
}

function writeAnchor(sqlite: DatabaseSync, link: Link, key: Uint8Array | undefined): void {
  sqlite.exec('DELETE FROM anchor');
  sqlite
    .prepare('INSERT INTO anchor (id, hash, seal) VALUES (?, ?, ?)')
    .run(link.id, link.hash, key ? sealOf(key, 'anchor', link) : UNSEALED);
}

/** An existing checkpoint stays: if it contradicts the chain, verification must see that. */
function writeCheckpoint(sqlite: DatabaseSync, link: Link, atMs: number, key: Uint8Array | undefined): void {
  sqlite
    .prepare('INSERT OR IGNORE INTO checkpoints (id, at, hash, seal) VALUES (?, ?, ?, ?)')
    .run(link.id, atMs, link.hash, key ? sealOf(key, 'checkpoint', link) : UNSEALED);
}
