/**
 * API keys: `e2b_` and 40 hex digits, which E2B's clients accept too. Only a hash is kept: a key has
 * 160 random bits, so nothing slower than SHA-256 is needed to make it unguessable.
 */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import { CayError, isCayError, newId, type Key } from '@cay/sdk/protocol';
import type { Database } from './database.ts';

interface StoredKey {
  id: string;
  name: string;
  project: string;
  role: Key['role'];
  hint: string;
  created_at: number;
  last_used_at: number | null;
}

export interface NewKey {
  key: Key;
  /** Shown once, to whoever asked for it. */
  secret: string;
}

export interface KeyRecords {
  create(options: {
    name: string;
    project: string;
    role: Key['role'];
    secretOf?(id: string): string;
  }): NewKey;
  get(id: string): Key | undefined;
  list(project?: string): Key[];
  /** The key that this secret is, if it is one. */
  find(secret: string): Key | undefined;
  /** Absent is done; resolves whether there was one. */
  revoke(id: string, project?: string): boolean;
}

const SHAPE = /^e2b_[0-9a-f]{40}$/;
/** Being used is noted at most this often: it must not cost a write for every request. */
const USED_EVERY_MS = 60_000;

export function keyRecords(database: Database, now: () => number = Date.now): KeyRecords {
  const cache = new Map<string, { key: Key; notedAtMs: number }>();
  return {
    create({ name, project, role, secretOf = () => `e2b_${randomBytes(20).toString('hex')}` }) {
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
      database.run(
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
    get(id) {
      const row = database.get<StoredKey>('SELECT * FROM keys WHERE id = ?', id);
      return row && parse(row);
    },
    list(project) {
      const rows =
        project === undefined
          ? database.all<StoredKey>('SELECT * FROM keys ORDER BY created_at')
          : database.all<StoredKey>('SELECT * FROM keys WHERE project = ? ORDER BY created_at', project);
      return rows.map(parse);
    },
    find(secret) {
      if (!SHAPE.test(secret)) return undefined;
      const hash = hashOf(secret);
      const at = now();
      const cached = cache.get(hash);
      if (cached && at - cached.notedAtMs < USED_EVERY_MS) return cached.key;
      const row = database.get<StoredKey>('SELECT * FROM keys WHERE hash = ?', hash);
      if (!row) return undefined;
      try {
        database.run('UPDATE keys SET last_used_at = ? WHERE id = ?', at, row.id);
      } catch (error) {
        // A disk too full to note that a key was used is no reason to refuse it.
        if (!isCayError(error, 'resource_exhausted')) throw error;
      }
      const key = { ...parse(row), lastUsedAtMs: at };
      cache.set(hash, { key, notedAtMs: at });
      return key;
    },
    revoke(id, project) {
      cache.clear();
      const removed =
        project === undefined
          ? database.run('DELETE FROM keys WHERE id = ?', id)
          : database.run('DELETE FROM keys WHERE id = ? AND project = ?', id, project);
      return removed > 0;
    },
  };
}

/** Whether a text has the form of a key's secret. */
export function isKeyShape(secret: string): boolean {
  return SHAPE.test(secret);
}

/** Rejects what is not a key's secret at all, for those who are given one to use. */
export function requireKeyShape(secret: string): void {
  if (!SHAPE.test(secret)) throw new CayError('invalid_argument', 'An API key is "e2b_" and 40 hex digits');
}

/**
 * A secret that can be told again to whoever repeats the call that made the key, and is stored nowhere: it
 * takes the installation's secret and the caller's idempotency key, of which only a digest is kept.
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
