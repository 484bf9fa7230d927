import {
  CayError,
  type Limits,
  type NetworkPolicy,
  type Pause,
  type SandboxId,
  type SandboxSpec,
  type SandboxState,
} from '@cay/sdk/protocol';
import { requireTransition } from '../transitions.ts';
import { NO_LIMIT, type SqlValue } from '../sql/sql.ts';
import {
  SANDBOX_COLUMNS,
  SANDBOX_INSERTED,
  parseSandbox,
  storedValue,
  type SandboxQuery,
  type SandboxRow,
  type StoredSandbox,
  type Usage,
} from './sandbox-row.ts';
import { sealedNetworks } from '../sealing/sealed-network.ts';
import { insertMounts } from './volumes.ts';
import { requireTextRoom } from './text-room.ts';
import type { TableContext } from './table-context.ts';

export interface SandboxRecords {
  /** Rejects `already_exists` if a sandbox of the project has the name. */
  insert(row: SandboxRow): Promise<void>;
  get(id: string): Promise<SandboxRow | undefined>;
  byName(project: string, name: string): Promise<SandboxRow | undefined>;
  /** Newest first. */
  list(query: SandboxQuery): Promise<SandboxRow[]>;
  /** The ids of all sandboxes and their projects, newest first. */
  ids(): Promise<{ id: SandboxId; project: string }[]>;
  /**
   * Changes the given fields. Rejects `not_found` if the sandbox does not exist, `failed_precondition` if the
   * change of state is not a legal one.
   */
  update(
    id: string,
    changes: Partial<Omit<SandboxRow, 'id' | 'project' | 'createdAtMs'>>,
  ): Promise<SandboxRow>;
  /** Also deletes the commands, command keys and lease of the sandbox. Deleting a missing one is no error. */
  delete(id: string): Promise<void>;
  withIdlePolicy(): Promise<SandboxRow[]>;
  hasIdlePolicy(): Promise<boolean>;
  /** Sandboxes whose turns are pruned. */
  withRetention(): Promise<SandboxRow[]>;
  /** Sandboxes whose files began as this snapshot. */
  basedOn(snapshot: string): Promise<SandboxRow[]>;
  /** Records when sandboxes were last used. Ignores sandboxes that do not exist. */
  used(atMs: ReadonlyMap<string, number>): Promise<void>;
  /**
   * The sums of the limits of a project's sandboxes. A stopped sandbox counts with its disk only, a frozen
   * one with its disk and memory.
   */
  usage(project: string): Promise<Usage>;
  /**
   * The sums of the limits of all sandboxes: memory of those that are in memory, disk of those that are not
   * archived.
   */
  promised(): Promise<Pick<Usage, 'memoryBytes' | 'diskBytes'>>;
  /**
   * The size of the memory images of a project's hibernated sandboxes. An image of unknown size counts with
   * the memory limit.
   */
  imageBytes(project: string): Promise<number>;
  /** How many sandboxes are in each state, in one project or in all. */
  counts(project?: string): Promise<Record<string, number>>;
  /** Sandboxes that are active or frozen. */
  inMemory(): Promise<SandboxRow[]>;
  /** Sandboxes whose timeout has passed. */
  expired(nowMs: number): Promise<SandboxRow[]>;
  /** When the next timeout passes. */
  nextExpiry(): Promise<number | undefined>;
  /** Shortens the time that each sandbox has left to its timeout, or to `leastMs` where that is longer. */
  shorten(nowMs: number, leastMs: number): Promise<void>;
  /**
   * Lowers timeouts, and the time that is left, to a maximum. Resolves the sandboxes that it changed; call it
   * in a transaction with their events.
   */
  lowerTimeouts(maximumMs: number, nowMs: number): Promise<SandboxRow[]>;
}

export function sandboxTable({ sql, specs, box }: TableContext): SandboxRecords {
  const { dialect } = sql;
  const networks = sealedNetworks(box);
  const parse = (row: StoredSandbox) =>
    parseSandbox(row, specs.parsed(`sandboxes/${row.id}`, row.spec), {
      network: networks.parsed(`sandboxes/${row.id}`, row.network),
      templateNetwork: networks.parsed(`sandboxes/${row.id}/template`, row.template_network),
    });
  const column = (id: string, key: string, value: unknown) => {
    const row = `sandboxes/${id}`;
    if (key === 'spec') return specs.stored(row, value as SandboxSpec);
    if (key === 'network') return networks.stored(row, value as NetworkPolicy | null);
    if (key === 'templateNetwork') return networks.stored(`${row}/template`, value as NetworkPolicy | null);
    return storedValue(value);
  };
  const many = async (rest: string, ...values: SqlValue[]) =>
    (await sql.all<StoredSandbox>(`SELECT * FROM sandboxes ${rest}`, ...values)).map(parse);
  const one = async (rest: string, ...values: SqlValue[]) => {
    const row = await sql.get<StoredSandbox>(`SELECT * FROM sandboxes ${rest}`, ...values);
    return row && parse(row);
  };
  const records: SandboxRecords = {
    async insert(row) {
      const keys = Object.keys(SANDBOX_INSERTED) as (keyof typeof SANDBOX_INSERTED)[];
      await requireTextRoom(sql, row, { ...row }, (key, value) => column(row.id, key, value));
      // A statement that fails would end a PostgreSQL transaction, so that a conflict inserts nothing
      // instead.
      const inserted = await sql.run(
        `INSERT INTO sandboxes (${Object.values(SANDBOX_INSERTED).join(', ')})
         VALUES (${keys.map(() => '?').join(', ')}) ON CONFLICT DO NOTHING`,
        ...keys.map((key) => column(row.id, key, row[key])),
      );
      if (inserted > 0) return insertMounts(sql, row, row.spec.mounts ?? []);
      if (row.name !== null && (await records.byName(row.project, row.name))) {
        throw new CayError('already_exists', `A sandbox named "${row.name}" exists already`, {
          hint: 'choose another name, or pass getOrCreate',
        });
      }
      throw new CayError('internal', `Cannot record sandbox "${row.id}": its id is in use`);
    },
    get: (id) => one('WHERE id = ?', id),
    byName: (project, name) => one('WHERE project = ? AND name = ?', project, name),
    list(query) {
      const conditions: string[] = ['1 = 1'];
      const values: SqlValue[] = [];
      const where = (condition: string, ...given: SqlValue[]) => {
        conditions.push(condition);
        values.push(...given);
      };
      if (query.project !== undefined) where('project = ?', query.project);
      if (query.state !== undefined) where('state = ?', query.state);
      for (const [key, value] of Object.entries(query.labels ?? {}))
        where(dialect.hasMember('labels'), key, value);
      if (query.after) where('(created_at, id) < (?, ?)', query.after.createdAtMs, query.after.id);
      return many(
        `WHERE ${conditions.join(' AND ')} ORDER BY created_at DESC, id DESC LIMIT ?`,
        ...values,
        query.limit ?? NO_LIMIT,
      );
    },
    ids: () =>
      sql.all<{ id: SandboxId; project: string }>(
        'SELECT id, project FROM sandboxes ORDER BY created_at DESC, id DESC',
      ),
    update: (id, changes) =>
      sql.transaction(async (tx) => {
        const before = await tx.get<{ state: SandboxState; project: string }>(
          `SELECT state, project FROM sandboxes WHERE id = ?${dialect.lockRow}`,
          id,
        );
        if (!before) throw new CayError('not_found', `Sandbox "${id}" does not exist`);
        if (changes.state !== undefined && changes.state !== before.state)
          requireTransition(id, before.state, changes.state);
        const { project } = before;
        await requireTextRoom(tx, { project, id }, changes, (key, value) => column(id, key, value));
        const entries = Object.entries(changes).filter(([, value]) => value !== undefined) as [
          keyof typeof SANDBOX_COLUMNS,
          unknown,
        ][];
        const row =
          entries.length === 0
            ? await tx.get<StoredSandbox>('SELECT * FROM sandboxes WHERE id = ?', id)
            : await tx.get<StoredSandbox>(
                `UPDATE sandboxes SET ${entries.map(([key]) => `${SANDBOX_COLUMNS[key]} = ?`).join(', ')}
                 WHERE id = ? RETURNING *`,
                ...entries.map(([key, value]) => column(id, key, value)),
                id,
              );
        return parse(row!);
      }),
    withIdlePolicy: () => many('WHERE idle IS NOT NULL'),
    hasIdlePolicy: async () =>
      (await sql.get('SELECT 1 AS found FROM sandboxes WHERE idle IS NOT NULL LIMIT 1')) !== undefined,
    withRetention: () => many('WHERE retention IS NOT NULL'),
    basedOn: (snapshot) => many('WHERE base = ?', snapshot),
    used: (times) =>
      sql.transaction(async (tx) => {
        for (const [id, atMs] of times)
          await tx.run('UPDATE sandboxes SET used_at = ? WHERE id = ?', atMs, id);
      }),
    async delete(id) {
      await sql.run('DELETE FROM sandboxes WHERE id = ?', id);
    },
    async usage(project) {
      const rows = await sql.all<UsingSandbox>(
        'SELECT state, paused_as, spec FROM sandboxes WHERE project = ?',
        project,
      );
      return usageOf(rows);
    },
    promised: async () =>
      (await sql.get<{ memoryBytes: number; diskBytes: number }>(
        `SELECT CAST(coalesce(sum(CASE WHEN state IN ('creating', 'active') OR paused_as = 'frozen'
                  THEN ${dialect.jsonNumber('spec', 'limits', 'memoryBytes')} ELSE 0 END), 0) AS BIGINT) AS "memoryBytes",
                CAST(coalesce(sum(CASE WHEN paused_as = 'archived' THEN 0
                  ELSE ${dialect.jsonNumber('spec', 'limits', 'diskBytes')} END), 0) AS BIGINT) AS "diskBytes"
         FROM sandboxes`,
      ))!,
    imageBytes: async (project) =>
      (await sql.get<{ bytes: number }>(
        `SELECT CAST(coalesce(sum(coalesce(image_bytes, ${dialect.jsonNumber('spec', 'limits', 'memoryBytes')})), 0)
                AS BIGINT) AS bytes
         FROM sandboxes WHERE project = ? AND paused_as = 'hibernated'`,
        project,
      ))!.bytes,
    async counts(project) {
      const of = project === undefined ? '' : 'WHERE project = ?';
      const rows = await sql.all<{ state: string; count: number }>(
        `SELECT state, count(*) AS count FROM sandboxes ${of} GROUP BY state`,
        ...(project === undefined ? [] : [project]),
      );
      return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
    },
    inMemory: () => many(`WHERE state = 'active' OR paused_as = 'frozen'`),
    expired: (nowMs) => many('WHERE expires_at <= ?', nowMs),
    async shorten(nowMs, leastMs) {
      const longest = 'CASE WHEN timeout_ms > ? THEN timeout_ms ELSE ? END';
      await sql.run(
        `UPDATE sandboxes SET expires_at = ? + ${longest}
         WHERE timeout_ms IS NOT NULL AND expires_at > ? + ${longest}`,
        ...[nowMs, leastMs, leastMs],
        ...[nowMs, leastMs, leastMs],
      );
    },
    async lowerTimeouts(maximumMs, nowMs) {
      const untilMs = nowMs + maximumMs;
      // What is being destroyed has a time at which that is tried again.
      const rows = await sql.all<StoredSandbox>(
        `UPDATE sandboxes SET
           timeout_ms = CASE WHEN timeout_ms < ? THEN timeout_ms ELSE ? END,
           expires_at = CASE WHEN expires_at < ? THEN expires_at
                             WHEN state = 'active' OR expires_at IS NOT NULL THEN ? ELSE expires_at END
         WHERE state <> 'destroying' AND (timeout_ms IS NULL OR timeout_ms > ?) RETURNING *`,
        ...[maximumMs, maximumMs],
        ...[untilMs, untilMs],
        maximumMs,
      );
      return rows.map(parse);
    },
    nextExpiry: async () =>
      (await sql.get<{ at: number | null }>('SELECT min(expires_at) AS at FROM sandboxes'))?.at ?? undefined,
  };
  return records;
}

type UsingSandbox = Pick<StoredSandbox, 'spec' | 'state'> & { paused_as: Pause | null };

function usageOf(rows: readonly UsingSandbox[]): Usage {
  const usage: Usage = { sandboxes: 0, cpus: 0, memoryBytes: 0, diskBytes: 0, pids: 0 };
  for (const { state, paused_as: pausedAs, spec } of rows) {
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
}
