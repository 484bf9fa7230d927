import { createHash } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { isDigestOf, requestDigest } from '../sealing/request-digest.ts';
import type { TableContext } from './table-context.ts';

/**
 * What a creating call with an idempotency key has created, so that repeating the call creates no other. A
 * key belongs to a project. Only digests of keys and requests are recorded, for a week.
 */
export interface IdempotencyRecords {
  /** The id of what the key created. Rejects `conflict` if the key was used for another request. */
  find(project: string, key: string, request: unknown): Promise<string | undefined>;
  /** In the transaction that creates it. Rejects `conflict` if the key is in use. */
  remember(project: string, key: string, request: unknown, made: string): Promise<void>;
  /** For an id that was never created: its key can be used again. */
  forget(made: string): Promise<void>;
  /** How many keys of a project are remembered. Takes milliseconds where they are many. */
  count(project: string): Promise<number>;
}

/** How long idempotency keys are remembered. */
export const KEYS_KEPT_MS = 7 * 24 * 3600 * 1000;

export function idempotencyTable({ sql, box, now, ageing }: TableContext): IdempotencyRecords {
  return {
    async find(project, key, request) {
      const known = await sql.get<{ request: string; made: string }>(
        'SELECT request, made FROM idempotency WHERE project = ? AND key = ?',
        project,
        keyDigest(key),
      );
      if (known && !isDigestOf(known.request, request, box)) throw keyReused(key);
      return known?.made;
    },
    remember: (project, key, request, made) =>
      sql.transaction(async (tx) => {
        await tx.run('DELETE FROM idempotency WHERE created_at < ?', ageing() - KEYS_KEPT_MS);
        const inserted = await tx.run(
          `INSERT INTO idempotency (project, key, request, made, created_at) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING`,
          project,
          keyDigest(key),
          requestDigest(request, box),
          made,
          now(),
        );
        if (inserted === 0) throw keyReused(key);
      }),
    count: async (project) =>
      (await sql.get<{ count: number }>(
        'SELECT count(*) AS count FROM idempotency WHERE project = ? AND created_at >= ?',
        project,
        ageing() - KEYS_KEPT_MS,
      ))!.count,
    async forget(made) {
      await sql.run('DELETE FROM idempotency WHERE made = ?', made);
    },
  };
}

export function keyDigest(key: string): string {
  return createHash('sha256').update(key).digest('hex');
}

export function keyReused(key: string): CayError {
  return new CayError('conflict', `Idempotency key "${key}" was used for another request`, {
    hint: 'use a new key for a new request',
  });
}
