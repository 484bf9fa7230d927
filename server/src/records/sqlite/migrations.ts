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
  `
  ALTER TABLE sandboxes ADD COLUMN paused_as TEXT;
  ALTER TABLE sandboxes ADD COLUMN idle TEXT;
  ALTER TABLE sandboxes ADD COLUMN lease_until INTEGER;
  ALTER TABLE sandboxes ADD COLUMN used_at INTEGER;
  ALTER TABLE sandboxes ADD COLUMN retention TEXT;
  ALTER TABLE sandboxes ADD COLUMN on_boot TEXT NOT NULL DEFAULT 'stay';
  ALTER TABLE sandboxes ADD COLUMN base TEXT;
  ALTER TABLE sandboxes ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE sandboxes ADD COLUMN origin TEXT;
  ALTER TABLE sandboxes ADD COLUMN deed TEXT;
  CREATE INDEX sandboxes_idle ON sandboxes (id) WHERE idle IS NOT NULL;
  CREATE INDEX sandboxes_base ON sandboxes (base) WHERE base IS NOT NULL;
  CREATE INDEX sandboxes_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;

  CREATE TABLE snapshots (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    sandbox TEXT NOT NULL,
    parent TEXT,
    name TEXT,
    turn INTEGER,
    cause TEXT NOT NULL,
    labels TEXT NOT NULL,
    memory INTEGER NOT NULL,
    runtime TEXT,
    spec TEXT NOT NULL,
    quiet INTEGER NOT NULL,
    state TEXT NOT NULL,
    here INTEGER NOT NULL,
    object TEXT,
    created_at INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX snapshots_name ON snapshots (project, sandbox, name) WHERE name IS NOT NULL;
  CREATE UNIQUE INDEX snapshots_turn ON snapshots (project, sandbox, turn) WHERE turn IS NOT NULL;
  CREATE INDEX snapshots_order ON snapshots (project, created_at DESC, id DESC);
  CREATE INDEX snapshots_sandbox ON snapshots (sandbox);
  CREATE INDEX snapshots_parent ON snapshots (parent) WHERE parent IS NOT NULL;

  CREATE TABLE templates (
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    snapshot TEXT NOT NULL REFERENCES snapshots(id),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
  ) STRICT;

  CREATE TABLE forks (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    snapshot TEXT NOT NULL,
    children TEXT NOT NULL,
    keyed INTEGER NOT NULL,
    made INTEGER NOT NULL,
    created_at INTEGER NOT NULL
  ) STRICT;
  `,
  `
  CREATE TABLE commands (
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    argv TEXT NOT NULL,
    pty INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    overflow TEXT NOT NULL,
    key TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    end TEXT,
    output_bytes INTEGER NOT NULL,
    kept_from INTEGER NOT NULL,
    PRIMARY KEY (sandbox, id)
  ) STRICT;
  CREATE INDEX commands_running ON commands (sandbox) WHERE end IS NULL;

  CREATE TABLE webhooks (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    url TEXT NOT NULL,
    types TEXT NOT NULL,
    cursor INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    failing_since INTEGER,
    last_error TEXT,
    disabled_at INTEGER,
    created_at INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX webhooks_project ON webhooks (project);
  `,
  `
  CREATE TABLE builds (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    template TEXT NOT NULL,
    names TEXT NOT NULL,
    limits TEXT NOT NULL,
    digest TEXT,
    state TEXT NOT NULL,
    start TEXT,
    ready TEXT,
    snapshot TEXT,
    failure TEXT,
    log TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER
  ) STRICT;
  CREATE INDEX builds_order ON builds (project, created_at);
  CREATE INDEX builds_snapshot ON builds (snapshot) WHERE snapshot IS NOT NULL;
  `,
  `
  CREATE TABLE promised_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    event TEXT NOT NULL
  ) STRICT;
  `,
  `
  ALTER TABLE sandboxes ADD COLUMN uid TEXT;
  `,
  `
  ALTER TABLE projects ADD COLUMN token_epoch INTEGER NOT NULL DEFAULT 0;
  `,
  `
  ALTER TABLE sandboxes ADD COLUMN image_bytes INTEGER;
  ALTER TABLE snapshots ADD COLUMN file_bytes INTEGER;
  ALTER TABLE snapshots ADD COLUMN memory_bytes INTEGER;
  CREATE INDEX snapshots_usage ON snapshots (project, state, file_bytes, memory_bytes);
  CREATE INDEX sandboxes_hibernated ON sandboxes (project) WHERE paused_as = 'hibernated';
  `,
  `
  CREATE TABLE shared_files (
    origin TEXT NOT NULL,
    holder TEXT NOT NULL,
    project TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (origin, holder)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX shared_files_holder ON shared_files (holder);
  CREATE INDEX shared_files_project ON shared_files (project, origin, bytes);
  `,
  `
  CREATE INDEX idempotency_age ON idempotency (created_at);
  CREATE INDEX idempotency_made ON idempotency (made);
  `,
  `
  CREATE TABLE leases (
    sandbox TEXT PRIMARY KEY REFERENCES sandboxes(id) ON DELETE CASCADE,
    holder TEXT NOT NULL,
    operation TEXT NOT NULL,
    fence INTEGER NOT NULL,
    operations INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  `,
  `
  ALTER TABLE projects ADD COLUMN network TEXT;
  ALTER TABLE sandboxes ADD COLUMN network TEXT;
  ALTER TABLE snapshots ADD COLUMN network TEXT;
  `,
  `
  CREATE TABLE stored_secrets (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (project, name)
  ) STRICT;
  ALTER TABLE templates ADD COLUMN network TEXT;
  ALTER TABLE sandboxes ADD COLUMN template_network TEXT;
  ALTER TABLE snapshots ADD COLUMN template_network TEXT;
  `,
  `
  CREATE TABLE volumes (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    platform TEXT,
    state TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    size_bytes INTEGER,
    counted_bytes INTEGER NOT NULL,
    origin TEXT,
    labels TEXT NOT NULL,
    created_at INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX volumes_name ON volumes (project, name);
  CREATE TABLE volume_mounts (
    volume TEXT NOT NULL REFERENCES volumes(id),
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    PRIMARY KEY (sandbox, path)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX volume_mounts_volume ON volume_mounts (volume);
  `,
  `
  ALTER TABLE templates ADD COLUMN config TEXT;
  CREATE TABLE build_steps (
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    state TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (project, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX build_steps_snapshot ON build_steps (snapshot);
  CREATE INDEX build_steps_age ON build_steps (project, used_at);
  `,
  `
  CREATE TABLE host_ports (
    protocol TEXT NOT NULL,
    host_port INTEGER NOT NULL,
    address TEXT NOT NULL,
    port INTEGER NOT NULL,
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    project TEXT NOT NULL,
    PRIMARY KEY (protocol, host_port)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX host_ports_sandbox ON host_ports (sandbox);
  CREATE INDEX host_ports_project ON host_ports (project);
  `,
  `
  ALTER TABLE sandboxes ADD COLUMN networks TEXT;
  `,
  `
  CREATE TABLE buckets (
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    config TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project, name)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE bucket_syncs (
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    bucket TEXT NOT NULL,
    config TEXT NOT NULL,
    pending INTEGER NOT NULL,
    files INTEGER NOT NULL,
    synced_at INTEGER,
    error TEXT,
    base TEXT,
    PRIMARY KEY (sandbox, path)
  ) STRICT;
  `,
];
