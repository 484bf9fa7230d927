/**
 * Templates as they were last prepared.
 *
 * Finding out whether a template has changed reads much of what it is made of, which no request
 * should wait for: what was prepared before is used at once, and looked at again in the background
 * when it is older than a while.
 */
import { CayError } from '@cay/sdk/protocol';
import type { HostResources } from '../../host/host-resources.ts';
import type { IdMapping } from '../../host/runtimes/runtime.ts';
import type { PreparedTemplate, Template } from '../../host/templates/template.ts';

export interface PreparedTemplates {
  /** Rejects `not_found`. */
  get(name: string): Template;
  prepare(name: string, ids: IdMapping): Promise<PreparedTemplate>;
  /** Has the next `prepare` look at the template itself again. */
  forget(name: string): void;
}

const FRESH_MS = 60_000;

export function preparedTemplates(
  resources: HostResources,
  templates: Map<string, Template>,
  onError: (error: unknown) => void,
): PreparedTemplates {
  const known = new Map<string, { prepared: PreparedTemplate; atMs: number; looking: boolean }>();

  async function look(template: Template, ids: IdMapping): Promise<PreparedTemplate> {
    const prepared = await template.prepare(resources.trees, ids);
    known.set(keyOf(template.name, ids), { prepared, atMs: performance.now(), looking: false });
    return prepared;
  }

  function get(name: string): Template {
    const template = templates.get(name);
    if (template) return template;
    throw new CayError('not_found', `Template "${name}" is unknown`, {
      hint: `known templates: ${[...templates.keys()].join(', ')}`,
    });
  }

  return {
    get,
    async prepare(name, ids) {
      const template = get(name);
      const last = known.get(keyOf(name, ids));
      if (!last) return look(template, ids);
      if (!last.looking && performance.now() - last.atMs > FRESH_MS) {
        last.looking = true;
        look(template, ids).catch((error: unknown) => {
          last.looking = false;
          onError(error);
        });
      }
      return last.prepared;
    },
    forget(name) {
      for (const key of known.keys()) if (key.startsWith(`${name} `)) known.delete(key);
    },
  };
}

/** The same template belongs to other ids under another runtime, and is another tree. */
function keyOf(name: string, ids: IdMapping): string {
  return `${name} ${ids.hostId}`;
}
