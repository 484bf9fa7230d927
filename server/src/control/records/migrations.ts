/** Each entry takes the records one version further. Entries are only ever added. */
export const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE projects (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    quota TEXT NOT NULL,
    created_at INTEGER NOT NULL
  ) STRICT;

  CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    project TEXT NOT NULL REFERENCES projects(id),
    role TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    hint TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER
  ) STRICT;

  CREATE TABLE sandboxes (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    message TEXT,
    backend TEXT NOT NULL,
    runtime TEXT,
    spec TEXT NOT NULL,
    labels TEXT NOT NULL,
    ports TEXT NOT NULL,
    timeout_ms INTEGER,
    on_timeout TEXT NOT NULL,
    expires_at INTEGER,
    incarnation INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER
  ) STRICT;
  CREATE UNIQUE INDEX sandboxes_name ON sandboxes (project, name) WHERE name IS NOT NULL;
  CREATE INDEX sandboxes_order ON sandboxes (project, created_at DESC, id DESC);

  CREATE TABLE idempotency (
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project, key)
  ) STRICT;

  CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
  ) STRICT;
  `,
  `
  ALTER TABLE idempotency RENAME COLUMN sandbox TO made;

  CREATE TABLE command_keys (
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    command TEXT NOT NULL,
    started INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (sandbox, key)
  ) STRICT;
  CREATE INDEX command_keys_age ON command_keys (created_at);
  `,
];
