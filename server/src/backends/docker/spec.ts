import { createHash } from 'node:crypto';
import { CayError, type SandboxSpec } from '@cay/sdk/protocol';
import { requireSpec } from '../check.ts';
import type { Engine } from './engine.ts';

const ENFORCED_BY = { cpus: 'cpuLimit', memoryBytes: 'memoryLimit', diskBytes: 'diskLimit', pids: 'pidsLimit' } as const;

/** Refuses what this engine cannot honour; the image is looked at elsewhere. */
export function checkSpec(spec: SandboxSpec, engine: Engine): void {
  requireSpec(spec);
  if (spec.runtime !== undefined && !engine.runtimes.includes(spec.runtime)) {
    throw new CayError('not_found', `Runtime "${spec.runtime}" is unknown to Docker`, {
      hint: `Known runtimes: ${engine.runtimes.join(', ')}`,
    });
  }
  for (const limit of Object.keys(ENFORCED_BY) as (keyof typeof ENFORCED_BY)[]) {
    const ability = ENFORCED_BY[limit];
    if (spec.limits[limit] === null || engine.abilities[ability]) continue;
    throw new CayError('unsupported', `Docker cannot enforce "limits.${limit}": ${engine.notes[ability]}`, {
      hint: `Set "limits.${limit}" to null`,
    });
  }
}

/** Of everything but the limits, which `resize` may change. */
export function hashOf({ limits: _limits, ...spec }: SandboxSpec): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(spec)))
    .digest('hex')
    .slice(0, 32);
}

/** The same value with its keys in order, so that equal specs read the same. */
function sorted(value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  const pairs = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(pairs.sort(([one], [other]) => (one < other ? -1 : 1)).map(([key, each]) => [key, sorted(each)]));
}
