import { CayError } from '@cay/sdk/protocol';
import { countedRows } from '../tenants/counted-rows.ts';
import { keyDigest, usedOtherwise, type IdempotencyOptions } from '../tenants/idempotency.ts';
import type { Database } from '../../records/database.ts';
import { isDigestOf, requestDigest } from '../tenants/request-digest.ts';

/**
 * Which command of a sandbox was run for a caller's key, so that repeating the call runs no other.
 *
 * The guest starts one command for one id. It forgets, though, when its sandbox starts anew or many
 * commands have ended since; so it is recorded here that a command was started, and then it is only
 * ever looked for. One that was claimed and not yet known to be started is asked for again, under
 * the same id.
 */
export interface CommandKeys {
  /**
   * The command that the key stands for: `id` if it is new. Rejects `conflict` if the key was for another
   * request, and `resource_exhausted` if the project has as many keys as it may. The command that a key stands
   * for may still run, so that none is forgotten to make room.
   */
  claim(sandbox: string, key: string, request: unknown, id: string): { id: string; started: boolean };
  /** The command that was started for the key. Rejects `conflict` as `claim` does. */
  find(sandbox: string, key: string, request: unknown): string | undefined;
  started(sandbox: string, key: string): void;
  /** A command that could not be started does not use up its key. */
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
        // It may have been removed since the caller looked.
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

/** What a repeated call is told when the guest does not have the command any more. */
export function forgotten(key: string, id: string): CayError {
  return new CayError(
    'not_found',
    `The command "${id}" that was run with idempotency key "${key}" is not remembered any more`,
    {
      hint: 'it was run; use a new key to run it again',
    },
  );
}
