import type { SandboxSpec } from '@cay/sdk/protocol';
import type { CallOptions, Guest } from '../../guest/guest.ts';

/** The id of the command that a sandbox was created with. */
export const MAIN_COMMAND_ID = 'main';

/**
 * Starts the spec's own command and detaches from it. The id is fixed, so repeating this after a
 * crash starts nothing twice.
 */
export async function startMain(guest: Guest, spec: SandboxSpec, call?: CallOptions): Promise<void> {
  if (!spec.cmd) return;
  const { cmd: argv, env, workdir, user } = spec;
  const handle = await guest.exec({ id: MAIN_COMMAND_ID, argv, env, workdir, user, overflow: 'drop' }, call);
  await handle[Symbol.asyncDispose]();
}
