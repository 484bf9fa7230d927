import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { countedRows } from './counted-rows.ts';
import type { QuotaLedger } from './quota-ledger.ts';
import type { Database } from '../../records/database.ts';
import { isDigestOf, requestDigest } from '../../records/sealing/request-digest.ts';

export interface Keyed {
  /** Makes a call repeatable: the same key and request resolve what the first call made. */
  idempotencyKey?: string;
}

/**
 * What calls with an idempotency key have made, so that a repeated call makes nothing. A key belongs to a
 * project, whatever it makes there. Only digests of keys and requests are kept.
 */
export interface Idempotency {
  /**
   * Throws `resource_exhausted` if the project has as many keys as it may. `remember` calls it; a call that
   * makes something before it remembers the key calls it first.
   */
  requireRoom(project: string): void;
  /** The id of what this key made. Throws `conflict` if the key was used for another request. */
  find(project: string, key: string, request: unknown): string | undefined;
  remember(project: string, key: string, request: unknown, made: string, atMs: number): void;
  /** A call that failed does not use up its key. */
  forget(made: string): void;
  /**
   * Makes something and remembers it in one transaction, or finds what was made before. Throws `not_found` if
   * that was removed.
   */
  once<T>(
    call: { project: string; key: string | undefined; request: unknown },
    operation: Operation<T>,
  ): { value: T; repeated: boolean };
}

interface Operation<T> {
  make(): { id: string; value: T };
  again(id: string): T | undefined;
}

const KEPT_MS = 7 * 24 * 3600 * 1000;

export interface IdempotencyOptions {
  now?(): number;
  ageing?(): number;
  /** A full quota refuses a new key, rather than delete an older one, whose call could then run twice. */
  quota?: Pick<QuotaLedger, 'counts' | 'requireRoom'>;
}

export function idempotency(
  database: Database,
  { now = Date.now, ageing = now, quota }: IdempotencyOptions = {},
): Idempotency {
  const rows = countedRows(
    (project) =>
      database.get<{ count: number }>('SELECT count(*) AS count FROM idempotency WHERE project = ?', project)!
        .count,
  );
  quota?.counts('idempotencyKeys', 'calls', rows.of);
  const records: Idempotency = {
    requireRoom: (project) => quota?.requireRoom(project, 'idempotencyKeys', 1),
    find(project, key, request) {
      const known = database.get<{ request: string; made: string }>(
        'SELECT request, made FROM idempotency WHERE project = ? AND key = ?',
        project,
        keyDigest(key),
      );
      if (known && !isDigestOf(known.request, request, database.box)) throw usedOtherwise(key);
      return known?.made;
    },
    remember(project, key, request, made, atMs) {
      database.run('DELETE FROM idempotency WHERE created_at < ?', Math.min(atMs, ageing()) - KEPT_MS);
      records.requireRoom(project);
      database.run(
        'INSERT INTO idempotency (project, key, request, made, created_at) VALUES (?, ?, ?, ?, ?)',
        project,
        keyDigest(key),
        requestDigest(request, database.box),
        made,
        atMs,
      );
      rows.added(project);
    },
    forget: (made) => void database.run('DELETE FROM idempotency WHERE made = ?', made),
    once: ({ project, key, request }, operation) =>
      database.transaction(() => {
        if (key === undefined) return { value: operation.make().value, repeated: false };
        const id = records.find(project, key, request);
        if (id === undefined) {
          // `make` may begin something that the rollback of a transaction does not undo.
          records.requireRoom(project);
          const made = operation.make();
          records.remember(project, key, request, made.id, now());
          return { value: made.value, repeated: false };
        }
        const value = operation.again(id);
        if (value !== undefined) return { value, repeated: true };
        throw new CayError(
          'not_found',
          `What was made with idempotency key "${key}" ("${id}") does not exist any more`,
          {
            hint: 'use a new key to make another',
          },
        );
      }),
  };
  return records;
}

export function keyDigest(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

export function usedOtherwise(key: string): CayError {
  return new CayError('conflict', `Idempotency key "${key}" was used for another request`, {
    hint: 'use a new key for a new request',
  });
}
