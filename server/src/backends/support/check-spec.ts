import { CayError, type Capabilities, type SandboxSpec } from '@cay/sdk/protocol';
import { ENFORCED_LIMITS, LIMIT_ABILITIES } from '../../policy/limit-abilities.ts';
import { requireSpec } from './check.ts';

const MOUNT_ABILITIES = {
  volume: 'volumes',
  tmpfs: 'tmpfs',
  host: 'hostPaths',
  bucket: 'bucketMounts',
} as const;

/**
 * Refuses what a backend of these capabilities cannot honour; the template is looked at elsewhere. `where` is
 * the backend's name in messages.
 */
export function checkSpec(
  spec: SandboxSpec,
  where: string,
  known: Pick<Capabilities, 'runtimes' | 'abilities' | 'notes'>,
): void {
  requireSpec(spec);
  if (spec.runtime !== undefined && !known.runtimes.includes(spec.runtime)) {
    throw new CayError('not_found', `Runtime "${spec.runtime}" is unknown to ${where}`, {
      hint: `known runtimes: ${known.runtimes.join(', ')}`,
    });
  }
  for (const mount of spec.mounts ?? []) {
    const ability = MOUNT_ABILITIES[mount.type];
    if (!known.abilities[ability])
      throw new CayError('unsupported', `${where} cannot mount a ${mount.type}: ${known.notes[ability]}`);
    if (mount.type === 'volume' && mount.subpath !== undefined && !known.abilities.volumeSubpath)
      throw new CayError(
        'unsupported',
        `${where} cannot mount a part of a volume: ${known.notes.volumeSubpath}`,
      );
  }
  for (const limit of ENFORCED_LIMITS) {
    const ability = LIMIT_ABILITIES[limit];
    if (spec.limits[limit] === null || known.abilities[ability]) continue;
    throw new CayError('unsupported', `${where} cannot enforce "limits.${limit}": ${known.notes[ability]}`, {
      details: { limit },
      hint: `set "limits.${limit}" to null`,
    });
  }
}

/**
 * A spec as it was written, with the `usual` limits where it asks for none, and with no limit where none
 * could be enforced.
 */
export function withoutUnenforceable(
  input: { limits?: object },
  abilities: Capabilities['abilities'],
  usual: object = {},
): object {
  const unlimited = Object.entries(LIMIT_ABILITIES).flatMap(([limit, ability]) =>
    abilities[ability] ? [] : [[limit, null] as const],
  );
  return { ...input, limits: { ...usual, ...Object.fromEntries(unlimited), ...input.limits } };
}
