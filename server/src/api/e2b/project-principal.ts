import type { Principal } from '../../control/tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';

/** Whoever has what a sandbox itself is reached with acts for its project, without a key. */
export function projectPrincipal({ project }: Pick<SandboxRow, 'project'>): Principal {
  return { project, key: null, role: 'member' };
}
