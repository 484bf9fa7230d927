import { CayError } from '@cay/sdk/protocol';
import { countedRows } from '../tenants/counted-rows.ts';
import { keyDigest, usedOtherwise, type IdempotencyOptions } from '../tenants/idempotency.ts';
import type { Database } from '../../records/database.ts';
import { isDigestOf, requestDigest } from '../../records/sealing/request-digest.ts';

/**
 * Commands by the idempotency keys of callers, so that a repeated call starts no second command.
 *
 * The guest starts one command for one id, but forgets ids when its sandbox restarts or when many commands
 * have ended. So a started command is recorded here, and a repeated call only looks for it. A command that
 * was claimed and not confirmed is started again, under the same id.
 */
export interface CommandKeys {
  /**
   * Claims a key. Returns the command of the key: `id` if the key is new. Throws `conflict` if the key was
   * used for another request, and `resource_exhausted` if the project has too many keys. Keys are not
   * forgotten to make room, because their commands may still run.
   */
  claim(sandbox: string, key: string, request: unknown, id: string): { id: string; started: boolean };
  /** The started command of a key. Throws `conflict` as `claim` does. */
  find(sandbox: string, key: string, request: unknown): string | undefined;
  started(sandbox: string, key: string): void;
  /** Frees the key of a command that was not started. */
  release(sandbox: string, key: string): void;
}

const KEPT_MS = 7 * 24 * 3600 * 1000;

export function commandKeys(
  database: Database,
  { now = Date.now, ageing = now, quota }: IdempotencyOptions = {},
): CommandKeys {
  const rows = countedRows(
    (project) =>
      database.get<{ count: number }>(
        `SELECT count(*) AS count FROM sandboxes JOIN command_keys ON command_keys.sandbox = sandboxes.id
         WHERE project = ?`,
        project,
      )!.count,
  );
  quota?.counts('idempotencyKeys', 'commands', rows.of);

  function known(
    sandbox: string,
    key: string,
    request: unknown,
  ): { id: string; started: boolean } | undefined {
    const claimed = database.get<{ request: string; command: string; started: number }>(
      'SELECT request, command, started FROM command_keys WHERE sandbox = ? AND key = ?',
      sandbox,
      keyDigest(key),
    );
    if (!claimed) return undefined;
    if (!isDigestOf(claimed.request, request, database.box)) throw usedOtherwise(key);
    return { id: claimed.command, started: claimed.started !== 0 };
  }

  return {
    find(sandbox, key, request) {
      const claimed = known(sandbox, key, request);
      return claimed?.started ? claimed.id : undefined;
    },
    claim: (sandbox, key, request, id) =>
      database.transaction(() => {
        const before = known(sandbox, key, request);
        if (before) return before;
        const atMs = now();
        database.run('DELETE FROM command_keys WHERE created_at < ?', ageing() - KEPT_MS);
        // The sandbox may have been removed since the caller looked.
        const owner = database.get<{ project: string }>(
          'SELECT project FROM sandboxes WHERE id = ?',
          sandbox,
        );
        if (!owner) throw new CayError('not_found', `Sandbox "${sandbox}" does not exist`);
        quota?.requireRoom(owner.project, 'idempotencyKeys', 1);
        database.run(
          'INSERT INTO command_keys (sandbox, key, request, command, started, created_at) VALUES (?, ?, ?, ?, 0, ?)',
          sandbox,
          keyDigest(key),
          requestDigest(request, database.box),
          id,
          atMs,
        );
        rows.added(owner.project);
        return { id, started: false };
      }),
    started: (sandbox, key) =>
      void database.run(
        'UPDATE command_keys SET started = 1 WHERE sandbox = ? AND key = ?',
        sandbox,
        keyDigest(key),
      ),
    release: (sandbox, key) =>
      void database.run(
        'DELETE FROM command_keys WHERE sandbox = ? AND key = ? AND started = 0',
        sandbox,
        keyDigest(key),
      ),
  };
}

/** The error of a repeated call whose command the guest has forgotten. */
export function forgotten(key: string, id: string): CayError {
  return new CayError(
    'not_found',
    `The command "${id}" that was run with idempotency key "${key}" is not remembered any more`,
    {
      hint: 'it was run; use a new key to run it again',
    },
  );
}
