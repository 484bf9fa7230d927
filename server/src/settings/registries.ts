import { UnitError } from '../lib/units.ts';

/** The host of a registry, with its port if it has one. */
export const REGISTRY = /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:]+\])(?::[0-9]{1,5})?$/;

/** Mirrors by registry, from `REGISTRY=MIRROR`. */
export function mirrorsIn(pairs: readonly string[]): Record<string, string[]> {
  const mirrors: Record<string, string[]> = {};
  for (const pair of pairs) {
    const [registry = '', mirror = '', ...rest] = pair.split('=');
    if (rest.length > 0 || !REGISTRY.test(registry) || !REGISTRY.test(mirror))
      throw new UnitError(
        `"${pair.slice(0, 200)}" is not REGISTRY=MIRROR, such as docker.io=mirror.example.com`,
      );
    (mirrors[registry] ??= []).push(mirror);
  }
  return mirrors;
}
