import { SandboxSpecSchema, type SandboxSpec } from '@cay/sdk/protocol';
import { requireLimits } from '../../../policy/bound-limits.ts';
import { DEFAULT_POLICY, usualLimits } from '../../../policy/policy.ts';
import { requireSpec } from '../../support/check.ts';
import { checkSpec, withoutUnenforceable } from '../../support/check-spec.ts';
import type { Place } from '../tenancy/declarations.ts';
import { podAbilitiesOf, type PodAbilities } from './pod-abilities.ts';
import { findRuntimes, runtimeChoice } from '../runtimes.ts';
import { checkSettings, type KubernetesSettings } from '../settings.ts';
import { checkMounts } from './pod-mounts.ts';
import { checkWorkdir } from './workdir.ts';
import { workloadOptionsOf, type WorkloadOptions } from './workload.ts';

/**
 * A spec as a client sends it, with its defaults filled in and checked as a create would be, and the options
 * to render it.
 */
export async function renderedSpec(
  { client, namespace, installation }: Place,
  settings: KubernetesSettings,
  input: object,
  can: PodAbilities,
): Promise<{ spec: SandboxSpec; options: WorkloadOptions }> {
  const known = runtimeChoice(await findRuntimes(client, settings.runtimeClass), settings);
  const { runtime: asked } = input as { runtime?: string };
  const runtime = known.pick(asked);
  const { abilities, notes } = podAbilitiesOf(runtime, { volumes: settings.volumes ?? {}, ...can });
  const policy = settings.policy ?? DEFAULT_POLICY;
  const asWritten = withoutUnenforceable(input, abilities, usualLimits(policy));
  requireSpec(asWritten as SandboxSpec);
  const spec = SandboxSpecSchema.parse(asWritten);
  checkSpec(spec, 'Kubernetes', { runtimes: known.names, abilities, notes });
  requireLimits(policy, spec.limits, abilities);
  checkWorkdir(spec.workdir);
  checkMounts(spec);
  const context = { settings: { ...settings, ...checkSettings(settings) }, namespace, installation };
  return { spec, options: workloadOptionsOf(context, spec, runtime) };
}
