/** Finds Sandboxes that are made beside others, and those that another one has superseded. */
import { besideSelector, selectorOf } from '../client/names.ts';
import { adoption, supersededOf, type Workload, type Workloads } from '../workloads/workload.ts';
import type { ClaimPlace } from './claimed-sandbox.ts';
import { claimOf, isClaim, type Sandbox } from './objects.ts';
import { merged, patchObject } from './patch-object.ts';
import { listOf, read } from './read-objects.ts';

export function besideSandboxes(
  { client, sandboxes, claims, installation }: ClaimPlace & { installation: string },
  keepsFiles: (workload: Workload) => boolean,
): Pick<Workloads, 'reread' | 'adopt' | 'setRunning' | 'removeOne' | 'leftOver'> {
  return {
    async reread({ metadata: { name, uid } }, { signal } = {}) {
      const sandbox = await read<Sandbox>(client, `${sandboxes}/${name}`, `look at "${name}"`, signal);
      return sandbox?.metadata.uid === uid ? sandbox : undefined;
    },

    async adopt(workload, id, status, { signal } = {}) {
      const { name, uid } = workload.metadata;
      const body = {
        ...merged({ metadata: { uid } }, adoption(id, status)),
        ...(keepsFiles(workload) && status.mark === 'stopped' && { spec: { operatingMode: 'Suspended' } }),
      };
      await patchObject(client, `${sandboxes}/${name}`, body, {
        action: `make "${name}" the sandbox "${id}"`,
        signal,
      });
    },

    async setRunning({ metadata: { name, uid } }, isRunning, { signal } = {}) {
      const body = { metadata: { uid }, spec: { operatingMode: isRunning ? 'Running' : 'Suspended' } };
      const action = `${isRunning ? 'wake' : 'suspend'} "${name}"`;
      await patchObject(client, `${sandboxes}/${name}`, body, { action, signal });
    },

    async removeOne(workload, { signal } = {}) {
      const claim = claimOf(workload);
      const { name, uid } = claim ?? workload.metadata;
      await client.json('DELETE', `${claim || isClaim(workload) ? claims : sandboxes}/${name}`, {
        action: `remove "${name}"`,
        body: { propagationPolicy: 'Foreground', preconditions: { uid } },
        allow: [404, 409],
        signal,
      });
    },

    async leftOver(maker, { signal } = {}) {
      const action = 'look for what was left beside sandboxes';
      const [beside, all] = await Promise.all([
        listOf<Sandbox>(client, sandboxes, besideSelector(installation, maker), action, signal),
        listOf<Sandbox>(client, sandboxes, selectorOf(installation), action, signal),
      ]);
      // A Sandbox that was given for a claim is removed with its claim.
      return [...beside, ...supersededOf(all)].map((each) => {
        const claim = claimOf(each);
        const { name, uid } = claim ?? each.metadata;
        const path = `${claim ? claims : sandboxes}/${name}`;
        return { ...each, metadata: { ...each.metadata, name, uid }, path };
      });
    },
  };
}
