/**
 * API keys: `e2b_` and 40 hex digits, which E2B's clients accept too. Only a hash is kept: a key has
 * 160 random bits, so nothing slower than SHA-256 is needed to make it unguessable.
 */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { isCayError, newId, type Key } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

export interface NewKey {
  key: Key;
  /** Shown once, to the caller that made the key. */
  secret: string;
}

interface StoredKey {
  id: string;
  name: string;
  project: string;
  role: Key['role'];
  hint: string;
  created_at: number;
  last_used_at: number | null;
}

export interface KeyRecords {
  /** `secretOf` makes the secret for the id. Default: a random one. Only a hash of it is recorded. */
  create(options: {
    name: string;
    project: string;
    role: Key['role'];
    secretOf?(id: string): string;
  }): Promise<NewKey>;
  get(id: string): Promise<Key | undefined>;
  /** Oldest first, of one project or of all. */
  list(project?: string): Promise<Key[]>;
  /**
   * The key that has this secret. Called with every request: it is one read, so that a key revoked by another
   * server is refused at once, and at most one write a minute.
   */
  find(secret: string): Promise<Key | undefined>;
  /** Resolves whether there was one. */
  revoke(id: string, project?: string): Promise<boolean>;
}

const SHAPE = /^e2b_[0-9a-f]{40}$/;
/** Being used is noted at most this often: it must not cost a write for every request. */
const USED_EVERY_MS = 60_000;

export function keyTable({ sql, now }: TableContext): KeyRecords {
  return {
    async create({ name, project, role, secretOf = () => `e2b_${randomBytes(20).toString('hex')}` }) {
      const id = newId('key');
      const secret = secretOf(id);
      const key: Key = {
        id,
        name,
        project,
        role,
        hint: `${secret.slice(0, 8)}…`,
        createdAtMs: now(),
        lastUsedAtMs: null,
      };
      await sql.run(
        'INSERT INTO keys (id, name, project, role, hash, hint, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)',
        key.id,
        name,
        project,
        role,
        hashOf(secret),
        key.hint,
        key.createdAtMs,
      );
      return { key, secret };
    },
    async get(id) {
      const row = await sql.get<StoredKey>('SELECT * FROM keys WHERE id = ?', id);
      return row && parse(row);
    },
    async list(project) {
      const of = project === undefined ? '' : 'WHERE project = ?';
      const rows = await sql.all<StoredKey>(
        `SELECT * FROM keys ${of} ORDER BY created_at, id`,
        ...(project === undefined ? [] : [project]),
      );
      return rows.map(parse);
    },
    async find(secret) {
      if (!isKeyShape(secret)) return undefined;
      const row = await sql.get<StoredKey>('SELECT * FROM keys WHERE hash = ?', hashOf(secret));
      if (!row) return undefined;
      const at = now();
      if (row.last_used_at !== null && at - row.last_used_at < USED_EVERY_MS) return parse(row);
      try {
        await sql.run('UPDATE keys SET last_used_at = ? WHERE id = ?', at, row.id);
      } catch (error) {
        // A full disk is no reason to refuse a key.
        if (!isCayError(error, 'resource_exhausted')) throw error;
      }
      return { ...parse(row), lastUsedAtMs: at };
    },
    revoke: async (id, project) =>
      (project === undefined
        ? await sql.run('DELETE FROM keys WHERE id = ?', id)
        : await sql.run('DELETE FROM keys WHERE id = ? AND project = ?', id, project)) > 0,
  };
}

/** Whether a text has the form of a key's secret. */
export function isKeyShape(secret: string): boolean {
  return SHAPE.test(secret);
}

/**
 * A secret that a retry of the call that made the key gets again, and that is stored nowhere: it is derived
 * from the installation's secret and the caller's idempotency key, of which only a digest is kept.
 */
export function repeatableSecret(installation: Uint8Array, keyId: string, idempotencyKey: string): string {
  const mac = createHmac('sha256', installation).update(`${keyId}\n${idempotencyKey}`).digest('hex');
  return `e2b_${mac.slice(0, 40)}`;
}

function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

function parse(row: StoredKey): Key {
  return {
    id: row.id,
    name: row.name,
    project: row.project,
    role: row.role,
    hint: row.hint,
    createdAtMs: row.created_at,
    lastUsedAtMs: row.last_used_at,
  };
}
