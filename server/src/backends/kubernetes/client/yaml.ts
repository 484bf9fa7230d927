/** Objects of a cluster as text, one after the other. */
import { dumpYaml, loadAllYaml } from '@kubernetes/client-node';

export function toYaml(objects: readonly object[]): string {
  return objects
    .map((object) => dumpYaml(renamed(object, 'default', '_default'), { noRefs: true, lineWidth: -1 }))
    .join('---\n');
}

export function fromYaml<T>(text: string): T[] {
  return (loadAllYaml(text) as object[]).map((object) => renamed(object, '_default', 'default') as T);
}

/**
 * The library calls a field of a LimitRange `_default`, and leaves out without a word what is called as in
 * the cluster.
 */
function renamed(object: object, from: string, to: string): object {
  const { kind, spec } = object as { kind?: string; spec?: { limits: Record<string, unknown>[] } };
  if (kind !== 'LimitRange' || !spec) return object;
  const limits = spec.limits.map(({ [from]: value, ...rest }) => ({
    ...rest,
    ...(value !== undefined && { [to]: value }),
  }));
  return { ...object, spec: { ...spec, limits } };
}
