import { CayError } from '@cay/sdk/protocol';
import type { Orphan } from '../../backends/backend.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { Core } from '../core.ts';
import type { Control } from '../control.ts';
import type { Principal } from '../tenants/principal.ts';
import { findOrphanSandboxes, removeOrphanSandbox } from './orphan-sandboxes.ts';

/** An event names at most so many. */
const NAMED = 20;

/** Finds and removes orphans on the machine or the cluster, for its operator. */
export function sweepVerbs(
  core: Pick<Core, 'backend' | 'onError' | 'operations' | 'records'>,
): Pick<Control, 'sweep' | 'noteSwept'> {
  const { backend, onError, records } = core;

  async function recordSwept(orphans: Orphan[], principal?: Principal): Promise<void> {
    if (orphans.length === 0) return;
    await records.events.append({
      type: 'host.swept',
      ...(principal && { project: principal.project, key: principal.key }),
      data: {
        count: orphans.length,
        orphans: orphans.slice(0, NAMED).map(({ kind, name }) => `${kind} ${name}`),
      },
    });
  }

  return {
    noteSwept: (orphans) => inBackground(recordSwept(orphans), onError),
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
      if (!dryRun) await recordSwept(orphans, principal);
      return orphans;
    },
  };
}
