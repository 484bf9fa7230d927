import { CayError } from '@cay/sdk/protocol';
import { isDigestOf, requestDigest } from '../sealing/request-digest.ts';
import type { Sql } from '../sql/sql.ts';
import { KEYS_KEPT_MS, keyDigest, keyReused } from './idempotency.ts';
import type { TableContext } from './table-context.ts';

/**
 * The command of a sandbox that was run for an idempotency key, so that repeating the call runs no other.
 *
 * The guest starts one command for one id, but forgets it when its sandbox restarts or when many commands
 * have ended since. So it is recorded here that a command was started, and from then on the command is only
 * looked for. A command that was claimed and is not known to be started is started again, under the same id.
 */
export interface ClaimOptions {
  /** Called with the sandbox's project before a new key is recorded. If it rejects, none is. */
  admit?(project: string): Promise<void>;
}

export interface CommandKeyRecords {
  /**
   * The command of the key: `id` if the key is new. Rejects `conflict` if the key was used for another
   * request, `not_found` if the sandbox does not exist.
   */
  claim(
    sandbox: string,
    key: string,
    request: unknown,
    id: string,
    options?: ClaimOptions,
  ): Promise<{ id: string; started: boolean }>;
  /** The command that was started for the key. Rejects `conflict` as `claim` does. */
  find(sandbox: string, key: string, request: unknown): Promise<string | undefined>;
  started(sandbox: string, key: string): Promise<void>;
  /** For a command that could not be started: its key can be used again. */
  release(sandbox: string, key: string): Promise<void>;
  /** How many keys the commands of a project's sandboxes have. Takes milliseconds where they are many. */
  count(project: string): Promise<number>;
}

export function commandKeyTable({ sql, box, now, ageing }: TableContext): CommandKeyRecords {
  async function known(
    on: Sql,
    sandbox: string,
    key: string,
    request: unknown,
  ): Promise<{ id: string; started: boolean } | undefined> {
    const claimed = await on.get<{ request: string; command: string; started: number }>(
      'SELECT request, command, started FROM command_keys WHERE sandbox = ? AND key = ?',
      sandbox,
      keyDigest(key),
    );
    if (!claimed) return undefined;
    if (!isDigestOf(claimed.request, request, box)) throw keyReused(key);
    return { id: claimed.command, started: claimed.started !== 0 };
  }

  return {
    async find(sandbox, key, request) {
      const claimed = await known(sql, sandbox, key, request);
      return claimed?.started ? claimed.id : undefined;
    },
    claim: (sandbox, key, request, id, { admit } = {}) =>
      sql.transaction(async (tx) => {
        const before = await known(tx, sandbox, key, request);
        if (before) return before;
        await tx.run('DELETE FROM command_keys WHERE created_at < ?', ageing() - KEYS_KEPT_MS);
        const owner = await tx.get<{ project: string }>(
          'SELECT project FROM sandboxes WHERE id = ?',
          sandbox,
        );
        if (!owner) throw new CayError('not_found', `Sandbox "${sandbox}" does not exist`);
        await admit?.(owner.project);
        await tx.run(
          `INSERT INTO command_keys (sandbox, key, request, command, started, created_at)
           VALUES (?, ?, ?, ?, 0, ?)`,
          sandbox,
          keyDigest(key),
          requestDigest(request, box),
          id,
          now(),
        );
        return { id, started: false };
      }),
    async started(sandbox, key) {
      await sql.run(
        'UPDATE command_keys SET started = 1 WHERE sandbox = ? AND key = ?',
        sandbox,
        keyDigest(key),
      );
    },
    count: async (project) =>
      (await sql.get<{ count: number }>(
        `SELECT count(*) AS count FROM sandboxes JOIN command_keys ON command_keys.sandbox = sandboxes.id
         WHERE project = ? AND command_keys.created_at >= ?`,
        project,
        ageing() - KEYS_KEPT_MS,
      ))!.count,
    async release(sandbox, key) {
      await sql.run(
        'DELETE FROM command_keys WHERE sandbox = ? AND key = ? AND started = 0',
        sandbox,
        keyDigest(key),
      );
    },
  };
}
