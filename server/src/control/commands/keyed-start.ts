import { isCayError, newId, type ExecBody, type SandboxId } from '@cay/sdk/protocol';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { CommandKeys } from './command-keys.ts';

/** One call that starts a command: under which id, and what is recorded of the caller's idempotency key. */
export interface KeyedStart {
  readonly id: string;
  /** An earlier call with the same key started the command. */
  readonly started: boolean;
  /** Records that the guest started the command. */
  confirm(): Promise<void>;
  /** Frees the key: the guest refused, so nothing was started. */
  release(): Promise<void>;
}

const RETRY_MS = 1000;

const UNKEYED = { started: false, confirm: async () => {}, release: async () => {} };

/** Claims the key, if there is one. Rejects `conflict` if the key was used for another request. */
export async function claimStart(
  keys: CommandKeys,
  sandbox: SandboxId,
  body: ExecBody,
  key: string | undefined,
): Promise<KeyedStart> {
  const id = body.id ?? newId('cmd');
  if (key === undefined) return { id, ...UNKEYED };
  return {
    ...(await keys.claim(sandbox, key, body, id)),
    confirm: () => confirm(keys, sandbox, key),
    release: () => keys.release(sandbox, key),
  };
}

/**
 * A full disk does not stop a command that runs. Until there is room the guest alone knows that it was
 * started, and a repeated call asks the guest under the same id.
 */
async function confirm(keys: CommandKeys, sandbox: SandboxId, key: string): Promise<void> {
  try {
    await keys.started(sandbox, key);
  } catch (error) {
    if (!isCayError(error, 'resource_exhausted')) throw error;
    // If the records are closed by then, the next server asks the guest again under the same id.
    setTimeout(() => inBackground(confirm(keys, sandbox, key), ignoreFailure), RETRY_MS).unref();
  }
}
