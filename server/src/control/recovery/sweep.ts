import { CayError } from '@cay/sdk/protocol';
import type { Orphan } from '../../backends/backend.ts';
import type { Context } from '../context.ts';
import type { Control } from '../control.ts';
import type { Principal } from '../tenants/principal.ts';
import { findOrphanSandboxes, removeOrphanSandbox } from './orphan-sandboxes.ts';

/** How many are named in an event. */
const NAMED = 20;

/** What was left behind on the machine or the cluster, for those who run it. */
export function sweepVerbs(
  context: Pick<Context, 'backend' | 'operations' | 'events' | 'onError' | 'sandboxes'>,
): Pick<Control, 'sweep' | 'noteSwept'> {
  const { backend, events, onError } = context;

  function note(orphans: Orphan[], principal?: Principal): void {
    if (orphans.length === 0) return;
    events.append({
      type: 'host.swept',
      ...(principal && { project: principal.project, key: principal.key }),
      data: {
        count: orphans.length,
        orphans: orphans.slice(0, NAMED).map(({ kind, name }) => `${kind} ${name}`),
      },
    });
  }

  return {
    noteSwept: note,
    async sweep(principal, { dryRun = false } = {}) {
      const sweeping = backend.ability('sweep');
      if (!sweeping)
        throw new CayError(
          'unsupported',
          `The ${backend.name} backend leaves nothing on this machine to look for`,
        );
      // Sandboxes first: what they had is then their own affair.
      const strangers = await findOrphanSandboxes(context);
      for (const stranger of dryRun ? [] : strangers)
        await removeOrphanSandbox(context, stranger).catch(onError);
      const orphans = [
        ...strangers.map(({ id }): Orphan => ({ kind: 'sandbox', name: id })),
        ...(await sweeping.sweep({ dryRun })),
      ];
      if (!dryRun) note(orphans, principal);
      return orphans;
    },
  };
}
