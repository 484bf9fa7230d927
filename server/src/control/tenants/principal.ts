import { CayError } from '@cay/sdk/protocol';

/**
 * `admin` may do everything, in all projects. `member` uses its own project. `metrics` may read the server's
 * metrics and nothing else.
 */
export type Role = 'admin' | 'member' | 'metrics';

/**
 * On whose behalf a call is made. Every verb of the control plane takes a principal and shows it only its own
 * project.
 */
export interface Principal {
  project: string;
  /** The id of the API key, for the event log; null for the server itself and for holders of a token. */
  key: string | null;
  role: Role;
}

/**
 * The principal of a caller that has a sandbox's own token instead of an API key. It acts as a member of the
 * sandbox's project. Call it only after the token was checked.
 */
export function tokenPrincipal({ project }: { project: string }): Principal {
  return { project, key: null, role: 'member' };
}

export function requireAdmin(principal: Principal): void {
  if (principal.role !== 'admin') throw new CayError('permission_denied', 'This needs an admin key');
}
