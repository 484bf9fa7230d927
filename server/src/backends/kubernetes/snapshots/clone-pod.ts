import { CayError, type SandboxId, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { withDeadline } from '../../../lib/timeout.ts';
import type { CloneOptions, Observation } from '../../backend.ts';
import { requireWanted } from '../../support/check.ts';
import { hashOf } from '../../support/spec-hash.ts';
import { startMain } from '../../support/start-main.ts';
import { ANNOTATIONS } from '../client/names.ts';
import { GUEST_ANSWER_MS } from '../workloads/start-workload.ts';
import { makeBeside } from './make-beside.ts';
import type { TravelContext } from './travel-context.ts';

/** The workload belongs to no sandbox until it has the files: a crash before leaves the sandbox absent. */
export async function clonePod(
  context: TravelContext,
  id: SandboxId,
  spec: SandboxSpec,
  snapshot: SnapshotId,
  { start = false, ...scope }: Omit<CloneOptions, 'memory'>,
): Promise<Observation> {
  const { admission, network, specs, starts, store, volumes, workloads } = context;
  requireWanted(scope.signal);
  const runtime = await admission.check(spec);
  const there = await workloads.find(id, scope);
  if (there) {
    const { [ANNOTATIONS.parent]: parent, [ANNOTATIONS.specHash]: hash } =
      there.workload.metadata.annotations ?? {};
    if (parent !== snapshot || hash !== hashOf(spec))
      throw new CayError('already_exists', `Sandbox "${id}" exists already`);
    return start ? context.ensure(id, spec, scope) : context.observed(id, there);
  }
  const from = await store.require(snapshot);
  await volumes.requireAll(spec, scope);
  await network?.require();
  await specs.keep(id, spec);
  return starts.run(async () => {
    const made = await makeBeside(context, { id, spec, runtime, incarnation: 1, from, ...scope });
    try {
      if (start) await startMain(made.live.guest, spec, withDeadline(scope, GUEST_ANSWER_MS));
      return await made.adopt(start ? 'ready' : 'stopped', scope);
    } catch (error) {
      await made.undo('the sandbox could not be made');
      throw error;
    }
  });
}
