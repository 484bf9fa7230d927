import { CayError } from '@cay/sdk/protocol';
import type { Orphan } from '../../backends/backend.ts';
import type { Core } from '../core.ts';
import type { Control } from '../control.ts';
import type { Principal } from '../tenants/principal.ts';
import { findOrphanSandboxes, removeOrphanSandbox } from './orphan-sandboxes.ts';

/** An event names at most so many. */
const NAMED = 20;

/** Finds and removes orphans on the machine or the cluster, for its operator. */
export function sweepVerbs(
  core: Pick<Core, 'backend' | 'events' | 'onError' | 'operations' | 'records'>,
): Pick<Control, 'sweep' | 'noteSwept'> {
  const { backend, events, onError } = core;

  function recordSwept(orphans: Orphan[], principal?: Principal): void {
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
    noteSwept: recordSwept,
    async sweep(principal, { dryRun = false } = {}) {
      const sweeping = backend.ability('sweep');
      if (!sweeping)
        throw new CayError('unsupported', `The ${backend.name} backend leaves no orphans to sweep`);
      // Sandboxes first: the backend's sweep then finds their parts.
      const sandboxes = await findOrphanSandboxes(core);
      for (const orphan of dryRun ? [] : sandboxes) await removeOrphanSandbox(core, orphan).catch(onError);
      const orphans = [
        ...sandboxes.map(({ id }): Orphan => ({ kind: 'sandbox', name: id })),
        ...(await sweeping.sweep({ dryRun })),
      ];
      if (!dryRun) recordSwept(orphans, principal);
      return orphans;
    },
  };
}
