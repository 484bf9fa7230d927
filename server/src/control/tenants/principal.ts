/**
 * On whose behalf something is done. Every verb of the control plane takes one and shows it only its own
 * project.
 */
export interface Principal {
  project: string;
  /** The key's id, for the event log; null for the server itself. */
  key: string | null;
  role: 'admin' | 'member';
}
