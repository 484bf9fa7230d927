import { CayError, type Limits, type SandboxId, type SandboxSpec, type SandboxState } from '@cay/sdk/protocol';
import { requireTransition } from '../transitions.ts';
import type { Database } from './database.ts';

export interface PortRecord {
  port: number;
  visibility: 'private' | 'public';
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
  onTimeout: 'stop' | 'destroy';
  expiresAtMs: number | null;
  incarnation: number;
  createdAtMs: number;
  startedAtMs: number | null;
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
  created_at: number;
  started_at: number | null;
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
}

export interface SandboxRecords {
  insert(row: SandboxRow): void;
  get(id: string): SandboxRow | undefined;
  byName(project: string, name: string): SandboxRow | undefined;
  list(query: SandboxQuery): SandboxRow[];
  /** Changes the given fields. A change of state must be a legal one. */
  update(id: string, changes: Partial<Omit<SandboxRow, 'id' | 'project' | 'createdAtMs'>>): SandboxRow;
  delete(id: string): void;
  /** What a project's sandboxes may take at most: those that are stopped take disk only. */
  usage(project: string): Usage;
  /** Those whose time is up, and when the next one's will be. */
  expired(nowMs: number): SandboxRow[];
  nextExpiry(): number | undefined;
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
  startedAtMs: 'started_at',
} as const;

export function sandboxRecords(database: Database): SandboxRecords {
  const records: SandboxRecords = {
    insert(row) {
      try {
        database.run(
          `INSERT INTO sandboxes (id, project, name, state, reason, message, backend, runtime, spec, labels, ports, timeout_ms, on_timeout, expires_at, incarnation, created_at, started_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
          row.id,
          row.project,
          row.name,
          row.state,
          row.reason,
          row.message,
          row.backend,
          row.runtime,
          JSON.stringify(row.spec),
          JSON.stringify(row.labels),
          JSON.stringify(row.ports),
          row.timeoutMs,
          row.onTimeout,
          row.expiresAtMs,
          row.incarnation,
          row.createdAtMs,
          row.startedAtMs,
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
    byName: (project, name) => parse(database.get<StoredRow>('SELECT * FROM sandboxes WHERE project = ? AND name = ?', project, name)),
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
        where('EXISTS (SELECT 1 FROM json_each(labels) AS label WHERE label.key = ? AND label.value = ?)', key, value);
      }
      if (query.after) where('(created_at, id) < (?, ?)', query.after.createdAtMs, query.after.id);
      values.push(query.limit ?? -1);
      return database
        .all<StoredRow>(`SELECT * FROM sandboxes WHERE ${conditions.join(' AND ')} ORDER BY created_at DESC, id DESC LIMIT ?`, ...values)
        .map((row) => parse(row)!);
    },
    update: (id, changes) =>
      database.transaction(() => {
        const before = records.get(id);
        if (!before) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
        if (changes.state !== undefined && changes.state !== before.state) requireTransition(id, before.state, changes.state);
        const entries = Object.entries(changes).filter(([, value]) => value !== undefined) as [keyof typeof COLUMNS, unknown][];
        if (entries.length > 0) {
          const values = entries.map(([, value]) =>
            typeof value === 'object' && value !== null ? JSON.stringify(value) : (value as string | number | null),
          );
          database.run(`UPDATE sandboxes SET ${entries.map(([key]) => `${COLUMNS[key]} = ?`).join(', ')} WHERE id = ?`, ...values, id);
        }
        return records.get(id)!;
      }),
    delete: (id) => void database.run('DELETE FROM sandboxes WHERE id = ?', id),
    usage(project) {
      const usage: Usage = { sandboxes: 0, cpus: 0, memoryBytes: 0, diskBytes: 0 };
      for (const { state, spec } of database.all<{ state: SandboxState; spec: string }>(
        'SELECT state, spec FROM sandboxes WHERE project = ?',
        project,
      )) {
        const { cpus, memoryBytes, diskBytes } = (JSON.parse(spec) as { limits: Limits }).limits;
        usage.sandboxes++;
        usage.diskBytes += diskBytes ?? 0;
        if (state === 'creating' || state === 'active') {
          usage.cpus += cpus ?? 0;
          usage.memoryBytes += memoryBytes ?? 0;
        }
      }
      return usage;
    },
    expired: (nowMs) => database.all<StoredRow>(`SELECT * FROM sandboxes WHERE expires_at <= ?`, nowMs).map((row) => parse(row)!),
    nextExpiry: () => database.get<{ at: number | null }>('SELECT min(expires_at) AS at FROM sandboxes')?.at ?? undefined,
  };
  return records;
}

function parse(row: StoredRow | undefined): SandboxRow | undefined {
  if (!row) return undefined;
  return {
    id: row.id as SandboxId,
    project: row.project,
    name: row.name,
    state: row.state as SandboxState,
    reason: row.reason,
    message: row.message,
    backend: row.backend,
    runtime: row.runtime,
    spec: JSON.parse(row.spec) as SandboxSpec,
    labels: JSON.parse(row.labels) as Record<string, string>,
    ports: JSON.parse(row.ports) as PortRecord[],
    timeoutMs: row.timeout_ms,
    onTimeout: row.on_timeout as 'stop' | 'destroy',
    expiresAtMs: row.expires_at,
    incarnation: row.incarnation,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
  };
}
