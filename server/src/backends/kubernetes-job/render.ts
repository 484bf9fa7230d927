/** What this backend makes in a cluster, told without making it. */
import type { Declared } from '../kubernetes/apply.ts';
import { declarations, type Declarations } from '../kubernetes/declarations.ts';
import { renderedSpec } from '../kubernetes/rendered-spec.ts';
import type { KubernetesSettings } from '../kubernetes/settings.ts';
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
