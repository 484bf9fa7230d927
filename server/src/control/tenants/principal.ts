/**
 * On whose behalf a call is made. Every verb of the control plane takes a principal and shows it only its own
 * project.
 */
export interface Principal {
  project: string;
  /** The key's id, for the event log; null for the server itself. */
  key: string | null;
  role: 'admin' | 'member';
}
