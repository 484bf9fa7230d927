import { CayError } from '@cay/sdk/protocol';
import type { Records } from '../../records/records.ts';
import type { CommandKeyRecords } from '../../records/tables/command-keys.ts';
import { countedRows } from '../tenants/counted-rows.ts';
import type { QuotaLedger } from '../tenants/quota-ledger.ts';

/** Commands by the idempotency keys of callers, so that a repeated call starts no second command. */
export interface CommandKeys extends Pick<CommandKeyRecords, 'find' | 'started' | 'release'> {
  /**
   * Claims a key. Resolves the command of the key: `id` if the key is new. Rejects `conflict` if the key was
   * used for another request, and `resource_exhausted` if the project has too many keys. Keys are not
   * forgotten to make room, because their commands may still run.
   */
  claim(
    sandbox: string,
    key: string,
    request: unknown,
    id: string,
  ): Promise<{ id: string; started: boolean }>;
}

export function openCommandKeys(
  records: Records,
  quota: Pick<QuotaLedger, 'counts' | 'requireRoom'>,
): CommandKeys {
  const rows = countedRows((project, on) => on.commandKeys.count(project));
  quota.counts('idempotencyKeys', 'commands', rows.of);
  const { find, started, release } = records.commandKeys;
  return {
    find,
    started,
    release,
    claim: (sandbox, key, request, id) =>
      records.transaction((tx) =>
        tx.commandKeys.claim(sandbox, key, request, id, {
          async admit(project) {
            await quota.requireRoom(tx, project, 'idempotencyKeys', 1);
            tx.afterCommit(() => rows.added(project));
          },
        }),
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
