/** The objects that this backend makes in a cluster, without making them. */
import type { Declared } from '../client/apply.ts';
import { declarations, type Declarations } from '../tenancy/declarations.ts';
import { renderedSpec } from '../workloads/rendered-spec.ts';
import type { KubernetesSettings } from '../settings.ts';
import { renderJob } from './job.ts';
import { OWNED_KINDS, RIGHTS } from './needs.ts';

export function kubernetesJobDeclarations(settings: KubernetesSettings): Declarations {
  return declarations(settings, {
    kinds: OWNED_KINDS,
    rights: RIGHTS,
    async sandbox(place, id, input) {
      const { spec, options } = await renderedSpec(place, settings, input, { freezes: true });
      return [renderJob(id, spec, 1, options) as Declared];
    },
  });
}
