/** The pod that a warm pool has: that of a sandbox which asks for nothing special. */
import { createHash } from 'node:crypto';
import { SandboxSpecSchema, type Limits, type SandboxSpec } from '@cay/sdk/protocol';
import { DEFAULT_POLICY, usualLimits } from '../../../policy/policy.ts';
import type { Runtime } from '../runtimes.ts';
import { podSpec, type PodOptions } from './pod-spec.ts';
import type { WorkloadContext } from './workload-context.ts';

export interface UsualPod {
  readonly spec: SandboxSpec;
  readonly options: PodOptions;
  readonly pod: object;
  /** Whether a sandbox of this spec has that pod. */
  fits(spec: SandboxSpec, options: PodOptions): boolean;
}

/** `limits` are laid over those that the operator's policy gives to a sandbox without any. */
export function usualPod(
  settings: WorkloadContext['settings'],
  runtime: Runtime,
  limits: Partial<Limits> = {},
): UsualPod {
  const spec = SandboxSpecSchema.parse({
    limits: { ...usualLimits(settings.policy ?? DEFAULT_POLICY), ...limits },
  });
  const { requests, pullPolicy } = settings;
  const options: PodOptions = { settings, requests, pullPolicy, runtime };
  const pod = podSpec(undefined, spec, options);
  const text = JSON.stringify(pod);
  return {
    spec,
    options,
    pod,
    fits: (asked, with_) => JSON.stringify(podSpec(undefined, asked, with_)) === text,
  };
}

/** Changes with what a pool is made of, so that a pool of other settings has another name. */
export function poolDigest(made: object): string {
  return createHash('sha256').update(JSON.stringify(made)).digest('hex').slice(0, 8);
}
