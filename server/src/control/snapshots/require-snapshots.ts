import { CayError } from '@cay/sdk/protocol';
import type { Backend, Snapshotting } from '../../backends/backend.ts';

/** The backend's snapshot verbs. Throws `unsupported` if it has none. */
export function requireSnapshots(backend: Backend): Snapshotting {
  const snapshots = backend.ability('snapshots');
  if (snapshots) return snapshots;
  throw new CayError('unsupported', `The ${backend.name} backend cannot take snapshots`);
}
