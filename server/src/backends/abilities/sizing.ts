import type { SandboxId } from '@cay/sdk/protocol';
import type { CallScope } from '../backend.ts';

/** Says what a sandbox takes on disk, in every phase. May take seconds. */
export interface Sizing {
  /** Its own files, without those of its template; null if nobody knows. Rejects `not_found`. */
  spaceOf(id: SandboxId, scope?: CallScope): Promise<{ fileBytes: number | null }>;
}
