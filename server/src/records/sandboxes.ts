import {
  CayError,
  type Limits,
  type Pause,
  type SandboxId,
  type SandboxSpec,
  type SandboxState,
} from '@cay/sdk/protocol';
import { sealedSpecs } from './sealing/sealed-spec.ts';
import { requireTransition } from './transitions.ts';
import type { Database } from './database.ts';
import {
  SANDBOX_COLUMNS,
  SANDBOX_INSERTED,
  parseSandbox,
  storedValue,
  type SandboxQuery,
  type SandboxRow,
  type StoredSandbox,
  type Usage,
} from './tables/sandbox-row.ts';

export { NO_IDLE_POLICY, NO_RETENTION, recorded } from './tables/sandbox-row.ts';
export type {
  Origin,
  PortRecord,
  ResizeOperation,
  RollbackOperation,
  SandboxQuery,
  SandboxRow,
  Usage,
} from './tables/sandbox-row.ts';

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

export function sandboxRecords(database: Database): SandboxRecords {
  const specs = sealedSpecs(database.box);
  const parse = (row: StoredSandbox | undefined) =>
    row && parseSandbox(row, specs.parsed(`sandboxes/${row.id}`, row.spec));
  const column = (id: string, key: string, value: unknown) =>
    key === 'spec' ? specs.stored(`sandboxes/${id}`, value as SandboxSpec) : storedValue(value);
  const records: SandboxRecords = {
    insert(row) {
      try {
        const keys = Object.keys(SANDBOX_INSERTED) as (keyof typeof SANDBOX_INSERTED)[];
        database.run(
          `INSERT INTO sandboxes (${Object.values(SANDBOX_INSERTED).join(', ')}) VALUES (${keys.map(() => '?').join(', ')})`,
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
    get: (id) => parse(database.get<StoredSandbox>('SELECT * FROM sandboxes WHERE id = ?', id)),
    byName: (project, name) =>
      parse(
        database.get<StoredSandbox>('SELECT * FROM sandboxes WHERE project = ? AND name = ?', project, name),
      ),
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
        .all<StoredSandbox>(
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
          keyof typeof SANDBOX_COLUMNS,
          unknown,
        ][];
        if (entries.length > 0) {
          const values = entries.map(([key, value]) => column(id, key, value));
          database.run(
            `UPDATE sandboxes SET ${entries.map(([key]) => `${SANDBOX_COLUMNS[key]} = ?`).join(', ')} WHERE id = ?`,
            ...values,
            id,
          );
        }
        return records.get(id)!;
      }),
    withIdlePolicy: () =>
      database.all<StoredSandbox>('SELECT * FROM sandboxes WHERE idle IS NOT NULL').map((row) => parse(row)!),
    hasIdlePolicy: () => database.get('SELECT 1 FROM sandboxes WHERE idle IS NOT NULL LIMIT 1') !== undefined,
    withRetention: () =>
      database
        .all<StoredSandbox>('SELECT * FROM sandboxes WHERE retention IS NOT NULL')
        .map((row) => parse(row)!),
    standingOn: (snapshot) =>
      database
        .all<StoredSandbox>('SELECT * FROM sandboxes WHERE base = ?', snapshot)
        .map((row) => parse(row)!),
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
        .all<StoredSandbox>(`SELECT * FROM sandboxes WHERE state = 'active' OR paused_as = 'frozen'`)
        .map((row) => parse(row)!),
    expired: (nowMs) =>
      database
        .all<StoredSandbox>(`SELECT * FROM sandboxes WHERE expires_at <= ?`, nowMs)
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
        .all<StoredSandbox>(
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
