/**
 * Policies that sandboxes have, compiled once for all who share them. What no sandbox has is not kept: it may
 * be large.
 */
import { createHash } from 'node:crypto';
import type { NetworkPolicy, SandboxId } from '@cay/sdk/protocol';
import { compilePolicy, type Layer, type PolicyOptions } from './compile-policy.ts';

export interface Compiled {
  readonly key: string;
  readonly layer: Layer;
  /** Of how many layers of sandboxes. */
  uses: number;
}

export interface CompiledPolicies {
  /** Throws `invalid_argument` if a rule cannot be read. */
  compile(policy: NetworkPolicy): Compiled;
  /** These are what a sandbox has now. */
  keep(id: SandboxId, now: readonly Compiled[]): void;
}

export function compiledPolicies(options: PolicyOptions): CompiledPolicies {
  /** By a digest of the policy. */
  const kept = new Map<string, Compiled>();
  const of = new Map<SandboxId, readonly Compiled[]>();
  return {
    compile(policy) {
      const key = createHash('sha256').update(JSON.stringify(policy)).digest('base64');
      return kept.get(key) ?? { key, layer: compilePolicy(policy, options), uses: 0 };
    },
    keep(id, now) {
      for (const one of now) if (one.uses++ === 0 && !kept.has(one.key)) kept.set(one.key, one);
      // Two layers of one sandbox may be the same policy, compiled twice.
      for (const one of of.get(id) ?? [])
        if (--one.uses === 0 && kept.get(one.key) === one) kept.delete(one.key);
      if (now.length > 0) of.set(id, now);
      else of.delete(id);
    },
  };
}
