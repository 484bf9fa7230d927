import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { CallScope } from '../../backend.ts';
import { hashOf } from '../../support/spec-hash.ts';
import { ANNOTATIONS } from '../client/names.ts';
import type { Found, Workloads } from './workload.ts';

/** The workload of a sandbox, if there is one. Rejects `already_exists` for one of another spec. */
export async function findOfSpec(
  workloads: Workloads,
  id: SandboxId,
  spec: SandboxSpec,
  call: CallScope,
): Promise<Found | undefined> {
  const found = await workloads.find(id, call);
  if (!found || found.workload.metadata.annotations?.[ANNOTATIONS.specHash] === hashOf(spec)) return found;
  throw new CayError('already_exists', `Cannot ensure sandbox "${id}": it was made from a different spec`);
}
