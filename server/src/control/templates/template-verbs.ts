import { CayError, SaveTemplateSchema, TemplateNameSchema, type Template } from '@cay/sdk/protocol';
import type { Context } from '../context.ts';
import type { TemplateVerbs } from '../control.ts';
import { hasPlatforms } from '../placement/placement.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { TemplateRow } from '../../records/templates.ts';

export function templateVerbs(context: Context, registry: SnapshotRegistry): TemplateVerbs {
  const { backend, capabilities, database, events, find, now, quota, sandboxes, snapshots, templates } =
    context;
  quota.counts('templates', 'templates', templates.count);
  /** Of several platforms one may have come only now. */
  const brought = async () => (hasPlatforms(backend) ? await backend.capabilities() : capabilities).templates;
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
          `"${name.slice(0, 80)}" cannot name a template: ${named.error.issues[0]?.message}`,
        );
      if ((await brought()).includes(name)) {
        throw new CayError(
          'already_exists',
          `A template named "${name}" comes with the ${capabilities.backend} backend`,
          {
            hint: 'choose another name',
          },
        );
      }
      const { project } = principal;
      const of = sandbox === undefined ? undefined : find(principal, sandbox).id;
      // One write, so that the snapshot cannot go in between.
      return database.transaction(() => {
        const row = {
          project,
          name,
          snapshot: registry.resolve(project, snapshot, of).id,
          createdAtMs: now(),
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
      const own = (await brought()).map((name) => ({
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
      // If only the template had kept it.
      const snapshot = snapshots.get(row.snapshot);
      if (snapshot && !sandboxes.get(snapshot.sandbox)) await registry.dropLeft();
    },
  };
}
