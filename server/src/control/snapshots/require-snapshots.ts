import { CayError } from '@cay/sdk/protocol';
import { canSnapshot, type Backend, type Snapshotting } from '../../backends/backend.ts';

/** The backend with its snapshot verbs. Throws `unsupported` if it has none. */
export function requireSnapshots(backend: Backend): Backend & Snapshotting {
  if (canSnapshot(backend)) return backend;
  throw new CayError('unsupported', `The ${backend.name} backend cannot take snapshots`);
}
