import { isCayError, newId, type ExecBody, type SandboxId } from '@cay/sdk/protocol';
import type { CommandKeys } from './command-keys.ts';

/** One call that starts a command: under which id, and what is recorded of the caller's idempotency key. */
export interface KeyedStart {
  readonly id: string;
  /** An earlier call with the same key started the command. */
  readonly started: boolean;
  /** Records that the guest started the command. */
  confirm(): void;
  /** Frees the key: the guest refused, so nothing was started. */
  release(): void;
}

const RETRY_MS = 1000;

/** Claims the key, if there is one. Rejects `conflict` if the key was used for another request. */
export function claimStart(
  keys: CommandKeys,
  sandbox: SandboxId,
  body: ExecBody,
  key: string | undefined,
): KeyedStart {
  const id = body.id ?? newId('cmd');
  if (key === undefined) return { id, started: false, confirm: () => {}, release: () => {} };
  return {
    ...keys.claim(sandbox, key, body, id),
    confirm: () => confirm(keys, sandbox, key),
    release: () => keys.release(sandbox, key),
  };
}

/**
 * A full disk does not stop a command that runs. Until there is room the guest alone knows that it was
 * started, and a repeated call asks the guest under the same id.
 */
function confirm(keys: CommandKeys, sandbox: SandboxId, key: string): void {
  try {
    keys.started(sandbox, key);
  } catch (error) {
    if (!isCayError(error, 'resource_exhausted')) throw error;
    setTimeout(() => {
      try {
        confirm(keys, sandbox, key);
      } catch {
        // The records were closed. The next server asks the guest again under the same id.
      }
    }, RETRY_MS).unref();
  }
}
