/**
 * The tables in PostgreSQL. Each entry takes the database one version further; entries are only ever added. A
 * column that is added here is added to the SQLite tables too, and the suite compares both.
 *
 * Text is compared byte by byte, as SQLite does. `seq` orders rows as they were inserted.
 */
export const POSTGRES_SCHEMA: readonly string[] = [
  `
  CREATE TABLE projects (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    quota TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    token_epoch BIGINT NOT NULL DEFAULT 0
  );

  CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    project TEXT NOT NULL REFERENCES projects(id),
    role TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    hint TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
  );

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
    timeout_ms BIGINT,
    on_timeout TEXT NOT NULL,
    expires_at BIGINT,
    incarnation BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    paused_as TEXT,
    idle TEXT,
    lease_until BIGINT,
    used_at BIGINT,
    retention TEXT,
    on_boot TEXT NOT NULL DEFAULT 'stay',
    base TEXT,
    turn BIGINT NOT NULL DEFAULT 0,
    origin TEXT,
    deed TEXT,
    uid TEXT,
    image_bytes BIGINT
  );
  CREATE UNIQUE INDEX sandboxes_name ON sandboxes (project, name) WHERE name IS NOT NULL;
  CREATE INDEX sandboxes_order ON sandboxes (project, created_at DESC, id DESC);
  CREATE INDEX sandboxes_idle ON sandboxes (id) WHERE idle IS NOT NULL;
  CREATE INDEX sandboxes_base ON sandboxes (base) WHERE base IS NOT NULL;
  CREATE INDEX sandboxes_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL;
  CREATE INDEX sandboxes_hibernated ON sandboxes (project) WHERE paused_as = 'hibernated';

  CREATE TABLE leases (
    sandbox TEXT PRIMARY KEY REFERENCES sandboxes(id) ON DELETE CASCADE,
    holder TEXT NOT NULL,
    operation TEXT NOT NULL,
    fence BIGINT NOT NULL,
    operations BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
  );

  CREATE TABLE idempotency (
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    made TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, key)
  );
  CREATE INDEX idempotency_age ON idempotency (created_at);
  CREATE INDEX idempotency_made ON idempotency (made);

  CREATE TABLE secrets (
    name TEXT PRIMARY KEY,
    value BYTEA NOT NULL
  );

  CREATE TABLE command_keys (
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    request TEXT NOT NULL,
    command TEXT NOT NULL,
    started BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (sandbox, key)
  );
  CREATE INDEX command_keys_age ON command_keys (created_at);

  CREATE TABLE snapshots (
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    sandbox TEXT NOT NULL,
    parent TEXT,
    name TEXT,
    turn BIGINT,
    cause TEXT NOT NULL,
    labels TEXT NOT NULL,
    memory BIGINT NOT NULL,
    runtime TEXT,
    spec TEXT NOT NULL,
    quiet BIGINT NOT NULL,
    state TEXT NOT NULL,
    here BIGINT NOT NULL,
    object TEXT,
    created_at BIGINT NOT NULL,
    file_bytes BIGINT,
    memory_bytes BIGINT
  );
  CREATE UNIQUE INDEX snapshots_name ON snapshots (project, sandbox, name) WHERE name IS NOT NULL;
  CREATE UNIQUE INDEX snapshots_turn ON snapshots (project, sandbox, turn) WHERE turn IS NOT NULL;
  CREATE INDEX snapshots_order ON snapshots (project, created_at DESC, id DESC);
  CREATE INDEX snapshots_sandbox ON snapshots (sandbox);
  CREATE INDEX snapshots_parent ON snapshots (parent) WHERE parent IS NOT NULL;
  CREATE INDEX snapshots_usage ON snapshots (project, state, file_bytes, memory_bytes);

  CREATE TABLE shared_files (
    origin TEXT NOT NULL,
    holder TEXT NOT NULL,
    project TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (origin, holder)
  );
  CREATE INDEX shared_files_holder ON shared_files (holder);
  CREATE INDEX shared_files_project ON shared_files (project, origin, bytes);

  CREATE TABLE templates (
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    snapshot TEXT NOT NULL REFERENCES snapshots(id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, name)
  );
  CREATE INDEX templates_snapshot ON templates (snapshot);

  CREATE TABLE forks (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    snapshot TEXT NOT NULL,
    children TEXT NOT NULL,
    keyed BIGINT NOT NULL,
    made BIGINT NOT NULL,
    created_at BIGINT NOT NULL
  );

  CREATE TABLE commands (
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    argv TEXT NOT NULL,
    pty BIGINT NOT NULL,
    pid BIGINT NOT NULL,
    overflow TEXT NOT NULL,
    key TEXT,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    "end" TEXT,
    output_bytes BIGINT NOT NULL,
    kept_from BIGINT NOT NULL,
    PRIMARY KEY (sandbox, id)
  );
  CREATE INDEX commands_running ON commands (sandbox) WHERE "end" IS NULL;

  CREATE TABLE webhooks (
    seq BIGINT GENERATED ALWAYS AS IDENTITY,
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    url TEXT NOT NULL,
    types TEXT NOT NULL,
    cursor BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    failing_since BIGINT,
    last_error TEXT,
    disabled_at BIGINT,
    created_at BIGINT NOT NULL
  );
  CREATE INDEX webhooks_project ON webhooks (project);

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
    created_at BIGINT NOT NULL,
    ended_at BIGINT
  );
  CREATE INDEX builds_order ON builds (project, created_at);
  CREATE INDEX builds_snapshot ON builds (snapshot) WHERE snapshot IS NOT NULL;

  CREATE TABLE promised_events (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    event TEXT NOT NULL
  );

  CREATE TABLE events (
    id BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    type TEXT NOT NULL,
    project TEXT,
    sandbox TEXT,
    key TEXT,
    outcome TEXT NOT NULL,
    data TEXT NOT NULL,
    hash BYTEA NOT NULL
  );
  CREATE INDEX events_sandbox ON events (sandbox, id);
  CREATE INDEX events_project ON events (project, id);
  CREATE TABLE anchor (id BIGINT NOT NULL, hash BYTEA NOT NULL, seal BYTEA NOT NULL);
  CREATE TABLE checkpoints (id BIGINT PRIMARY KEY, at BIGINT NOT NULL, hash BYTEA NOT NULL, seal BYTEA NOT NULL);
  CREATE TABLE gaps (first BIGINT PRIMARY KEY, last BIGINT NOT NULL, hash BYTEA NOT NULL, seal BYTEA NOT NULL);
  -- One row: the end of the chain. A server that appends locks it.
  CREATE TABLE event_head (id BIGINT NOT NULL, hash BYTEA NOT NULL);
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  ALTER TABLE projects ADD COLUMN network TEXT;
  ALTER TABLE sandboxes ADD COLUMN network TEXT;
  ALTER TABLE snapshots ADD COLUMN network TEXT;
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  CREATE TABLE stored_secrets (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    value TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (project, name)
  );
  ALTER TABLE templates ADD COLUMN network TEXT;
  ALTER TABLE sandboxes ADD COLUMN template_network TEXT;
  ALTER TABLE snapshots ADD COLUMN template_network TEXT;
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  CREATE TABLE volumes (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    platform TEXT,
    state TEXT NOT NULL,
    read_only BIGINT NOT NULL,
    size_bytes BIGINT,
    counted_bytes BIGINT NOT NULL,
    origin TEXT,
    labels TEXT NOT NULL,
    created_at BIGINT NOT NULL
  );
  CREATE UNIQUE INDEX volumes_name ON volumes (project, name);
  CREATE TABLE volume_mounts (
    volume TEXT NOT NULL REFERENCES volumes(id),
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    read_only BIGINT NOT NULL,
    PRIMARY KEY (sandbox, path)
  );
  CREATE INDEX volume_mounts_volume ON volume_mounts (volume);
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  ALTER TABLE templates ADD COLUMN config TEXT;
  CREATE TABLE build_steps (
    project TEXT NOT NULL,
    key TEXT NOT NULL,
    snapshot TEXT NOT NULL,
    state TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    PRIMARY KEY (project, key)
  );
  CREATE INDEX build_steps_snapshot ON build_steps (snapshot);
  CREATE INDEX build_steps_age ON build_steps (project, used_at);
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  CREATE TABLE host_ports (
    protocol TEXT NOT NULL,
    host_port BIGINT NOT NULL,
    address TEXT NOT NULL,
    port BIGINT NOT NULL,
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    project TEXT NOT NULL,
    PRIMARY KEY (protocol, host_port)
  );
  CREATE INDEX host_ports_sandbox ON host_ports (sandbox);
  CREATE INDEX host_ports_project ON host_ports (project);
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  ALTER TABLE sandboxes ADD COLUMN networks TEXT;
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
  `
  CREATE TABLE buckets (
    project TEXT NOT NULL REFERENCES projects(id),
    name TEXT NOT NULL,
    config TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (project, name)
  );
  CREATE TABLE bucket_syncs (
    sandbox TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    bucket TEXT NOT NULL,
    config TEXT NOT NULL,
    pending BIGINT NOT NULL,
    files BIGINT NOT NULL,
    synced_at BIGINT,
    error TEXT,
    base TEXT,
    PRIMARY KEY (sandbox, path)
  );
  `.replaceAll(' TEXT', ' TEXT COLLATE "C"'),
];
