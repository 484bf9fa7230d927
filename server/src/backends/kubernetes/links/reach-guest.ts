import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { CallScope } from '../../backend.ts';
import { limitsOf } from '../workloads/limits-of.ts';
import { ANSWER_MS } from '../workloads/await-guest.ts';
import type { WorkloadContext } from '../workloads/workload-context.ts';
import { observationOf } from '../workloads/workload-state.ts';
import { statusOf } from '../workloads/workload-status.ts';
import type { Live } from './guest-links.ts';

/** The link to a ready sandbox; opened if there is none. Rejects `not_found` or `failed_precondition`. */
export async function reachGuest(
  { links, workloads }: WorkloadContext,
  id: SandboxId,
  action: string,
  scope: CallScope = {},
): Promise<Live> {
  const now = links.get(id);
  if (now?.link.current) return now;
  const found = await workloads.find(id, scope);
  if (!found) throw new CayError('not_found', `Cannot ${action}: sandbox "${id}" does not exist`);
  const { phase, message, incarnation } = observationOf(id, found, workloads);
  const pod = found.pods.find(({ metadata }) => metadata.uid === statusOf(found.workload).pod);
  if (phase !== 'ready' || !pod) {
    links.hangUp(id, message ?? `it is ${phase}`);
    throw new CayError(
      'failed_precondition',
      `Cannot ${action}: sandbox "${id}" is ${phase}${message ? ` (${message})` : ''}`,
    );
  }
  // The guest gets its limits from the server that connects.
  const live = links.open({ id, pod, incarnation, limits: limitsOf(found) });
  await live.link.ready({ signal: scope.signal, timeoutMs: ANSWER_MS });
  return live;
}
