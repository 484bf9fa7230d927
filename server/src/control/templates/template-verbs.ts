import { CayError, SaveTemplateSchema, TemplateNameSchema, type Template } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import { hasPlatforms } from '../placement/placement.ts';
import type { TemplateVerbs } from './template.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { TemplateRow } from '../../records/templates.ts';

export function templateVerbs({
  backend,
  capabilities,
  clock,
  events,
  lookup,
  quota,
  records: { database, sandboxes, snapshots, templates },
  registry,
}: Pick<Core, 'backend' | 'capabilities' | 'clock' | 'events' | 'lookup' | 'quota' | 'records'> & {
  registry: SnapshotRegistry;
}): TemplateVerbs {
  quota.counts('templates', 'templates', templates.count);
  /** With several platforms the answer changes when another one becomes reachable. */
  const backendTemplates = async () =>
    (hasPlatforms(backend) ? await backend.capabilities() : capabilities).templates;
  const show = ({ name, snapshot, createdAtMs }: TemplateRow): Template => ({
    name,
    snapshot,
    memory: snapshots.get(snapshot)?.memory ?? false,
    createdAtMs,
  });
  return {
    async saveTemplate(principal, name, request) {
      const { snapshot, sandbox, replace } = SaveTemplateSchema.parse(request);
      const named = TemplateNameSchema.safeParse(name);
      if (!named.success)
        throw new CayError(
          'invalid_argument',
          `Invalid template name "${name.slice(0, 80)}": ${named.error.issues[0]?.message}`,
        );
      if ((await backendTemplates()).includes(name)) {
        throw new CayError(
          'already_exists',
          `A template named "${name}" comes with the ${capabilities.backend} backend`,
          {
            hint: 'choose another name',
          },
        );
      }
      const { project } = principal;
      const of = sandbox === undefined ? undefined : lookup.find(principal, sandbox).id;
      // One transaction, so that the snapshot cannot be removed in between.
      return database.transaction(() => {
        const row = {
          project,
          name,
          snapshot: registry.resolve(project, snapshot, of).id,
          createdAtMs: clock.now(),
        };
        if (!templates.get(project, name)) quota.requireRoom(project, 'templates', 1);
        templates.save(row, { replace });
        events.append({
          type: 'template.saved',
          project,
          key: principal.key,
          data: { template: name, snapshot: row.snapshot },
        });
        return show(row);
      });
    },

    async templates(principal) {
      const own = (await backendTemplates()).map((name) => ({
        name,
        snapshot: null,
        memory: false,
        createdAtMs: null,
      }));
      return [...own, ...templates.list(principal.project).map(show)];
    },

    async removeTemplate(principal, name) {
      const { project, key } = principal;
      const row = templates.get(project, name);
      const gone = database.transaction(() => {
        const there = templates.delete(project, name);
        if (there) events.append({ type: 'template.removed', project, key, data: { template: name } });
        return there;
      });
      if (!row || !gone) return;
      // A snapshot of a removed sandbox may have been kept for the template alone.
      const snapshot = snapshots.get(row.snapshot);
      if (snapshot && !sandboxes.get(snapshot.sandbox)) await registry.dropAbandoned();
    },
  };
}
