import {
  CayError,
  IdlePolicySchema,
  RetentionSchema,
  type IdlePolicy,
  type Limits,
  type OnBoot,
  type OnTimeout,
  type Pause,
  type Retention,
  type SandboxId,
  type SandboxSpec,
  type SandboxState,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { sealedSpecs } from './sealing/sealed-spec.ts';
import { requireTransition } from '../control/sandboxes/transitions.ts';
import type { Database } from './database.ts';

export interface PortRecord {
  port: number;
  visibility: 'private' | 'public';
}

/** What a sandbox that is being made starts from, if not from a template. */
export interface Origin {
  snapshot: SnapshotId;
  memory: boolean;
  /** Whether it is to run when it is made. */
  start: boolean;
}

/** A change of several steps that is under way: what a server that was killed finishes. */
export interface RollbackOperation {
  kind: 'rollback';
  to: SnapshotId;
  memory: boolean;
  kept: SnapshotId;
}

export interface ResizeOperation {
  kind: 'resize';
  /** Those that change, as they will be. */
  limits: Partial<Pick<Limits, 'cpus' | 'memoryBytes' | 'pids' | 'diskBytes'>>;
}

/** A sandbox as the control plane records it. */
export interface SandboxRow {
  id: SandboxId;
  project: string;
  name: string | null;
  state: SandboxState;
  reason: string | null;
  message: string | null;
  backend: string;
  runtime: string | null;
  spec: SandboxSpec;
  labels: Record<string, string>;
  ports: PortRecord[];
  timeoutMs: number | null;
  onTimeout: OnTimeout;
  expiresAtMs: number | null;
  incarnation: number;
  /** What the platform calls the last incarnation that ran. */
  uid: string | null;
  createdAtMs: number;
  startedAtMs: number | null;
  pausedAs: Pause | null;
  /** Null if it has no policy at all: those are never looked at. */
  idle: IdlePolicy | null;
  leaseUntilMs: number | null;
  usedAtMs: number | null;
  /** Null keeps everything. */
  retention: Retention | null;
  onBoot: OnBoot;
  base: SnapshotId | null;
  turn: number;
  origin: Origin | null;
  operation: RollbackOperation | ResizeOperation | null;
  /** How large its memory on disk was when it was hibernated last. */
  imageBytes: number | null;
}

interface StoredRow {
  id: string;
  project: string;
  name: string | null;
  state: string;
  reason: string | null;
  message: string | null;
  backend: string;
  runtime: string | null;
  spec: string;
  labels: string;
  ports: string;
  timeout_ms: number | null;
  on_timeout: string;
  expires_at: number | null;
  incarnation: number;
  uid: string | null;
  created_at: number;
  started_at: number | null;
  paused_as: string | null;
  idle: string | null;
  lease_until: number | null;
  used_at: number | null;
  retention: string | null;
  on_boot: string;
  base: string | null;
  turn: number;
  origin: string | null;
  deed: string | null;
  image_bytes: number | null;
}

export interface SandboxQuery {
  project?: string;
  state?: SandboxState;
  labels?: Record<string, string>;
  /** Rows after this one, newest first. */
  after?: { createdAtMs: number; id: string };
  limit?: number;
}

export interface Usage {
  sandboxes: number;
  cpus: number;
  memoryBytes: number;
  diskBytes: number;
  pids: number;
}

export interface SandboxRecords {
  insert(row: SandboxRow): void;
  get(id: string): SandboxRow | undefined;
  byName(project: string, name: string): SandboxRow | undefined;
  list(query: SandboxQuery): SandboxRow[];
  /** All that there are, newest first. */
  ids(): SandboxId[];
  /** Changes the given fields. A change of state must be a legal one. */
  update(id: string, changes: Partial<Omit<SandboxRow, 'id' | 'project' | 'createdAtMs'>>): SandboxRow;
  delete(id: string): void;
  /** Those with an idle policy. */
  withIdlePolicy(): SandboxRow[];
  hasIdlePolicy(): boolean;
  /** Those whose turns are pruned. */
  withRetention(): SandboxRow[];
  /** Those that stand on a snapshot. */
  standingOn(snapshot: string): SandboxRow[];
  /** Notes when sandboxes were used last. Those that are gone are none. */
  used(atMs: ReadonlyMap<string, number>): void;
  /**
   * What a project's sandboxes may take at most: those that are stopped take disk only, frozen ones their
   * memory too.
   */
  usage(project: string): Usage;
  /**
   * The sums of what all sandboxes may take: memory of those that are in memory, disk of those whose files
   * are here.
   */
  promised(): Pick<Usage, 'memoryBytes' | 'diskBytes'>;
  /**
   * What the memory of a project's hibernated sandboxes takes on disk; one that nobody measured counts with
   * its limit.
   */
  imageBytes(project: string): number;
  /** How many there are in each state, of one project or of all. */
  counts(project?: string): Record<string, number>;
  /** Those that are in memory. */
  inMemory(): SandboxRow[];
  /** Those whose time is up, and when the next one's will be. */
  expired(nowMs: number): SandboxRow[];
  nextExpiry(): number | undefined;
  /** Lets no sandbox have more time left than it was given, or than `leastMs`. */
  shorten(nowMs: number, leastMs: number): void;
  /**
   * Lets no sandbox have a longer timeout than that, nor more time left. Those that it changed; to be called
   * in a transaction with what is told of them.
   */
  lowerTimeouts(maximumMs: number, nowMs: number): SandboxRow[];
}

const COLUMNS = {
  name: 'name',
  state: 'state',
  reason: 'reason',
  message: 'message',
  backend: 'backend',
  runtime: 'runtime',
  spec: 'spec',
  labels: 'labels',
  ports: 'ports',
  timeoutMs: 'timeout_ms',
  onTimeout: 'on_timeout',
  expiresAtMs: 'expires_at',
  incarnation: 'incarnation',
  uid: 'uid',
  startedAtMs: 'started_at',
  pausedAs: 'paused_as',
  idle: 'idle',
  leaseUntilMs: 'lease_until',
  usedAtMs: 'used_at',
  retention: 'retention',
  onBoot: 'on_boot',
  base: 'base',
  turn: 'turn',
  origin: 'origin',
  operation: 'deed',
  imageBytes: 'image_bytes',
} as const;

const INSERTED = { id: 'id', project: 'project', createdAtMs: 'created_at', ...COLUMNS } as const;

export function sandboxRecords(database: Database): SandboxRecords {
  const specs = sealedSpecs(database.box);
  const parse = (row: StoredRow | undefined) =>
    row && parsed(row, specs.parsed(`sandboxes/${row.id}`, row.spec));
  const column = (id: string, key: string, value: unknown) =>
    key === 'spec' ? specs.stored(`sandboxes/${id}`, value as SandboxSpec) : stored(value);
  const records: SandboxRecords = {
    insert(row) {
      try {
        const keys = Object.keys(INSERTED) as (keyof typeof INSERTED)[];
        database.run(
          `INSERT INTO sandboxes (${Object.values(INSERTED).join(', ')}) VALUES (${keys.map(() => '?').join(', ')})`,
          ...keys.map((key) => column(row.id, key, row[key])),
        );
      } catch (error) {
        if (row.name !== null && records.byName(row.project, row.name)) {
          throw new CayError('already_exists', `A sandbox named "${row.name}" exists already`, {
            hint: 'choose another name, or pass getOrCreate',
          });
        }
        throw error;
      }
    },
    get: (id) => parse(database.get<StoredRow>('SELECT * FROM sandboxes WHERE id = ?', id)),
    byName: (project, name) =>
      parse(database.get<StoredRow>('SELECT * FROM sandboxes WHERE project = ? AND name = ?', project, name)),
    list(query) {
      const conditions: string[] = ['1'];
      const values: (string | number)[] = [];
      const where = (condition: string, ...given: (string | number)[]) => {
        conditions.push(condition);
        values.push(...given);
      };
      if (query.project !== undefined) where('project = ?', query.project);
      if (query.state !== undefined) where('state = ?', query.state);
      for (const [key, value] of Object.entries(query.labels ?? {})) {
        where(
          'EXISTS (SELECT 1 FROM json_each(labels) AS label WHERE label.key = ? AND label.value = ?)',
          key,
          value,
        );
      }
      if (query.after) where('(created_at, id) < (?, ?)', query.after.createdAtMs, query.after.id);
      values.push(query.limit ?? -1);
      return database
        .all<StoredRow>(
          `SELECT * FROM sandboxes WHERE ${conditions.join(' AND ')} ORDER BY created_at DESC, id DESC LIMIT ?`,
          ...values,
        )
        .map((row) => parse(row)!);
    },
    ids: () =>
      database
        .all<{ id: SandboxId }>('SELECT id FROM sandboxes ORDER BY created_at DESC, id DESC')
        .map(({ id }) => id),
    update: (id, changes) =>
      database.transaction(() => {
        const before = records.get(id);
        if (!before) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
        if (changes.state !== undefined && changes.state !== before.state)
          requireTransition(id, before.state, changes.state);
        const entries = Object.entries(changes).filter(([, value]) => value !== undefined) as [
          keyof typeof COLUMNS,
          unknown,
        ][];
        if (entries.length > 0) {
          const values = entries.map(([key, value]) => column(id, key, value));
          database.run(
            `UPDATE sandboxes SET ${entries.map(([key]) => `${COLUMNS[key]} = ?`).join(', ')} WHERE id = ?`,
            ...values,
            id,
          );
        }
        return records.get(id)!;
      }),
    withIdlePolicy: () =>
      database.all<StoredRow>('SELECT * FROM sandboxes WHERE idle IS NOT NULL').map((row) => parse(row)!),
    hasIdlePolicy: () => database.get('SELECT 1 FROM sandboxes WHERE idle IS NOT NULL LIMIT 1') !== undefined,
    withRetention: () =>
      database
        .all<StoredRow>('SELECT * FROM sandboxes WHERE retention IS NOT NULL')
        .map((row) => parse(row)!),
    standingOn: (snapshot) =>
      database.all<StoredRow>('SELECT * FROM sandboxes WHERE base = ?', snapshot).map((row) => parse(row)!),
    used: (times) =>
      database.transaction(() => {
        for (const [id, atMs] of times)
          database.run('UPDATE sandboxes SET used_at = ? WHERE id = ?', atMs, id);
      }),
    delete: (id) => void database.run('DELETE FROM sandboxes WHERE id = ?', id),
    usage(project) {
      const usage: Usage = { sandboxes: 0, cpus: 0, memoryBytes: 0, diskBytes: 0, pids: 0 };
      for (const { state, paused_as: pausedAs, spec } of database.all<{
        state: SandboxState;
        paused_as: Pause | null;
        spec: string;
      }>('SELECT state, paused_as, spec FROM sandboxes WHERE project = ?', project)) {
        const { cpus, memoryBytes, diskBytes, pids } = (JSON.parse(spec) as { limits: Limits }).limits;
        usage.sandboxes++;
        usage.diskBytes += diskBytes ?? 0;
        const runs = state === 'creating' || state === 'active';
        if (runs) usage.cpus += cpus ?? 0;
        if (!runs && pausedAs !== 'frozen') continue;
        usage.memoryBytes += memoryBytes ?? 0;
        usage.pids += pids ?? 0;
      }
      return usage;
    },
    promised: () =>
      database.get<{ memoryBytes: number; diskBytes: number }>(
        `SELECT ifnull(sum(iif(state IN ('creating', 'active') OR paused_as = 'frozen', json_extract(spec, '$.limits.memoryBytes'), 0)), 0) AS memoryBytes,
                ifnull(sum(iif(paused_as IS 'archived', 0, json_extract(spec, '$.limits.diskBytes'))), 0) AS diskBytes
         FROM sandboxes`,
      )!,
    imageBytes: (project) =>
      database.get<{ bytes: number }>(
        `SELECT ifnull(sum(ifnull(image_bytes, json_extract(spec, '$.limits.memoryBytes'))), 0) AS bytes
         FROM sandboxes WHERE project = ? AND paused_as = 'hibernated'`,
        project,
      )!.bytes,
    counts: (project) =>
      Object.fromEntries(
        database
          .all<{ state: string; count: number }>(
            'SELECT state, count(*) AS count FROM sandboxes WHERE ?1 IS NULL OR project = ?1 GROUP BY state',
            project ?? null,
          )
          .map(({ state, count }) => [state, count]),
      ),
    inMemory: () =>
      database
        .all<StoredRow>(`SELECT * FROM sandboxes WHERE state = 'active' OR paused_as = 'frozen'`)
        .map((row) => parse(row)!),
    expired: (nowMs) =>
      database
        .all<StoredRow>(`SELECT * FROM sandboxes WHERE expires_at <= ?`, nowMs)
        .map((row) => parse(row)!),
    shorten: (nowMs, leastMs) =>
      void database.run(
        'UPDATE sandboxes SET expires_at = ?1 + max(timeout_ms, ?2) WHERE timeout_ms IS NOT NULL AND expires_at > ?1 + max(timeout_ms, ?2)',
        nowMs,
        leastMs,
      ),
    lowerTimeouts: (maximumMs, nowMs) =>
      // What is being destroyed has a time at which that is tried again.
      database
        .all<StoredRow>(
          `UPDATE sandboxes SET timeout_ms = min(ifnull(timeout_ms, ?1), ?1),
             expires_at = iif(state = 'active', min(ifnull(expires_at, ?2), ?2), min(expires_at, ?2))
           WHERE state <> 'destroying' AND (timeout_ms IS NULL OR timeout_ms > ?1) RETURNING *`,
          maximumMs,
          nowMs + maximumMs,
        )
        .map((row) => parse(row)!),
    nextExpiry: () =>
      database.get<{ at: number | null }>('SELECT min(expires_at) AS at FROM sandboxes')?.at ?? undefined,
  };
  return records;
}

function stored(value: unknown): string | number | null {
  return typeof value === 'object' && value !== null
    ? JSON.stringify(value)
    : (value as string | number | null);
}

function parsed(row: StoredRow, spec: SandboxSpec): SandboxRow {
  return {
    id: row.id as SandboxId,
    project: row.project,
    name: row.name,
    state: row.state as SandboxState,
    reason: row.reason,
    message: row.message,
    backend: row.backend,
    runtime: row.runtime,
    spec,
    labels: JSON.parse(row.labels) as Record<string, string>,
    ports: JSON.parse(row.ports) as PortRecord[],
    timeoutMs: row.timeout_ms,
    onTimeout: row.on_timeout as OnTimeout,
    expiresAtMs: row.expires_at,
    incarnation: row.incarnation,
    uid: row.uid,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    pausedAs: row.paused_as as Pause | null,
    idle: json<IdlePolicy>(row.idle),
    leaseUntilMs: row.lease_until,
    usedAtMs: row.used_at,
    retention: json<Retention>(row.retention),
    onBoot: row.on_boot as OnBoot,
    base: row.base as SnapshotId | null,
    turn: row.turn,
    origin: json<Origin>(row.origin),
    operation: json<RollbackOperation | ResizeOperation>(row.deed),
    imageBytes: row.image_bytes,
  };
}

function json<T>(text: string | null): T | null {
  return text === null ? null : (JSON.parse(text) as T);
}

/** A policy as it is recorded: one that never does anything is none. */
export function recorded<T extends IdlePolicy | Retention>(policy: T): T | null {
  return Object.values(policy).some((bound) => bound !== null) ? policy : null;
}

export const NO_IDLE_POLICY: IdlePolicy = IdlePolicySchema.parse({});
export const NO_RETENTION: Retention = RetentionSchema.parse({});
