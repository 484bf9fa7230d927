import type { Principal } from '../../control/principal.ts';
import type { SandboxRow } from '../../control/records/sandboxes.ts';

/** Whoever has what a sandbox itself is reached with acts for its project, without a key. */
export function memberOf({ project }: Pick<SandboxRow, 'project'>): Principal {
  return { project, key: null, role: 'member' };
}
