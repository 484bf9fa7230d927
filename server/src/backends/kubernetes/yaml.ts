/** Objects of a cluster as text, one after the other. */
import { dumpYaml, loadAllYaml } from '@kubernetes/client-node';

export function toYaml(objects: readonly object[]): string {
  return objects.map((object) => dumpYaml(object, { noRefs: true, lineWidth: -1 })).join('---\n');
}

export function fromYaml<T>(text: string): T[] {
  return loadAllYaml(text) as T[];
}
