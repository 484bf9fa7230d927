import { SandboxSpecSchema, type SandboxSpec } from '@cay/sdk/protocol';
import { requireSpec } from '../check.ts';
import { checkSpec, withoutUnenforceable } from '../check-spec.ts';
import type { Place } from './declarations.ts';
import { podAbilitiesOf, type PodAbilities } from './pod-abilities.ts';
import { findRuntimes } from './runtimes.ts';
import { checkSettings, DEFAULT_RUNTIME, type KubernetesSettings } from './settings.ts';
import { workloadOptionsOf, type WorkloadOptions } from './workloads.ts';

/** A spec as somebody wrote it, made whole and checked as a create would be, with all that is needed to render it. */
export async function renderedSpec(
  { client, namespace, installation }: Place,
  settings: KubernetesSettings,
  input: object,
  can: PodAbilities,
): Promise<{ spec: SandboxSpec; options: WorkloadOptions }> {
  const known = await findRuntimes(client, settings.runtimeClass);
  const { runtime: asked } = input as { runtime?: string };
  const runtime = known.get(asked ?? settings.runtimeClass ?? DEFAULT_RUNTIME) ?? known.get(DEFAULT_RUNTIME)!;
  const { abilities, notes } = podAbilitiesOf(runtime, can);
  const asWritten = withoutUnenforceable(input, abilities);
  requireSpec(asWritten as SandboxSpec);
  const spec = SandboxSpecSchema.parse(asWritten);
  checkSpec(spec, 'Kubernetes', { runtimes: [...known.keys()], abilities, notes });
  const ground = { settings: { ...settings, ...checkSettings(settings) }, namespace, installation };
  return { spec, options: workloadOptionsOf(ground, spec, runtime) };
}
