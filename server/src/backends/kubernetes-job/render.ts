/** What this backend makes in a cluster, told without making it. */
import { SandboxSpecSchema, type SandboxSpec } from '@cay/sdk/protocol';
import type { Declared } from '../kubernetes/apply.ts';
import { declarations, type Declarations } from '../kubernetes/declarations.ts';
import { findRuntimes, type Runtime } from '../kubernetes/runtimes.ts';
import { checkSettings, DEFAULT_RUNTIME, type KubernetesSettings } from '../kubernetes/settings.ts';
import { requireSpec } from '../check.ts';
import { checkSpec, withoutUnenforceable } from '../check-spec.ts';
import { jobAbilitiesOf } from './abilities.ts';
import { jobOptionsOf, renderJob } from './job.ts';
import { OWNED_KINDS, RIGHTS } from './needs.ts';

export function kubernetesJobDeclarations(settings: KubernetesSettings): Declarations {
  return declarations(settings, {
    kinds: OWNED_KINDS,
    rights: RIGHTS,
    async sandbox({ client, namespace, installation }, id, input) {
      const known = await findRuntimes(client, settings.runtimeClass);
      const { runtime: asked } = input as { runtime?: string };
      const runtime: Runtime = known.get(asked ?? settings.runtimeClass ?? DEFAULT_RUNTIME) ?? known.get(DEFAULT_RUNTIME)!;
      const { abilities, notes } = jobAbilitiesOf(runtime);
      const asWritten = withoutUnenforceable(input, abilities);
      requireSpec(asWritten as SandboxSpec);
      const spec = SandboxSpecSchema.parse(asWritten);
      checkSpec(spec, 'Kubernetes', { runtimes: [...known.keys()], abilities, notes });
      const ground = { settings: { ...settings, ...checkSettings(settings) }, namespace, installation };
      return [renderJob(id, spec, 1, jobOptionsOf(ground, spec, runtime)) as Declared];
    },
  });
}
