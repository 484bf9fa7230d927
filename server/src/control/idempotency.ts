import { createHash } from 'node:crypto';
import { CayError, type CreateSandbox } from '@cay/sdk/protocol';
import type { Database } from './records/database.ts';

/** Which sandbox a create call with a caller's key has made, so that repeating the call makes no other. */
export interface Idempotency {
  /** The sandbox that this key made. Rejects `conflict` if the key was for another request. */
  find(project: string, key: string, request: CreateSandbox): string | undefined;
  remember(project: string, key: string, request: CreateSandbox, sandbox: string, atMs: number): void;
  /** A sandbox that never came to be does not use up its key. */
  forget(sandbox: string): void;
}

const KEPT_MS = 7 * 24 * 3600 * 1000;

export function idempotency(database: Database): Idempotency {
  return {
    find(project, key, request) {
      const known = database.get<{ request: string; sandbox: string }>(
        'SELECT request, sandbox FROM idempotency WHERE project = ? AND key = ?',
        project,
        key,
      );
      if (known && known.request !== digest(request)) {
        throw new CayError('conflict', `Idempotency key "${key}" was used for another request`, {
          hint: 'use a new key for a new request',
        });
      }
      return known?.sandbox;
    },
    remember(project, key, request, sandbox, atMs) {
      database.run('DELETE FROM idempotency WHERE created_at < ?', atMs - KEPT_MS);
      database.run(
        'INSERT INTO idempotency (project, key, request, sandbox, created_at) VALUES (?, ?, ?, ?, ?)',
        project,
        key,
        digest(request),
        sandbox,
        atMs,
      );
    },
    forget: (sandbox) => void database.run('DELETE FROM idempotency WHERE sandbox = ?', sandbox),
  };
}

function digest(request: CreateSandbox): string {
  return createHash('sha256').update(JSON.stringify(request)).digest('hex');
}
