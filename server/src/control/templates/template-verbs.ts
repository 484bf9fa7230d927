import { CayError, SaveTemplateSchema, TemplateNameSchema, type Template } from '@cay/sdk/protocol';
import type { Core } from '../core.ts';
import { hasPlatforms } from '../placement/placement.ts';
import { shownPolicy } from '../egress/network-policies.ts';
import { requireSecrets } from '../secrets/require-secrets.ts';
import type { TemplateVerbs } from './template.ts';
import type { SnapshotRegistry } from '../snapshots/snapshot-registry.ts';
import type { Tables } from '../../records/tables/tables.ts';
import type { TemplateRow } from '../../records/tables/templates.ts';

export function templateVerbs({
  backend,
  capabilities,
  clock,
  lookup,
  networks,
  quota,
  records,
  registry,
}: Pick<Core, 'backend' | 'capabilities' | 'clock' | 'lookup' | 'networks' | 'quota' | 'records'> & {
  registry: SnapshotRegistry;
}): TemplateVerbs {
  quota.counts('templates', 'templates', (project, on) => on.templates.count(project));
  /** With several platforms the answer changes when another one becomes reachable. */
  const backendTemplates = async () =>
    (hasPlatforms(backend) ? await backend.capabilities() : capabilities).templates;
  const show = async (
    on: Tables,
    { name, snapshot, createdAtMs, network, config }: TemplateRow,
  ): Promise<Template> => ({
    name,
    snapshot,
    memory: (await on.snapshots.get(snapshot))?.memory ?? false,
    createdAtMs,
    network: network && shownPolicy(network),
    ...(config && { config }),
  });
  return {
    async saveTemplate(principal, name, request, { keepNetwork = false } = {}) {
      const { snapshot, sandbox, replace, network: asked, config } = SaveTemplateSchema.parse(request);
      const named = TemplateNameSchema.safeParse(name);
      if (!named.success)
        throw new CayError(
          'invalid_argument',
          `Invalid template name "${name.slice(0, 80)}": ${named.error.issues[0]?.message}`,
        );
      // FROM scratch of a Dockerfile means nothing else.
      if (name === 'scratch' || (await backendTemplates()).includes(name)) {
        throw new CayError(
          'already_exists',
          `A template named "${name}" comes with the ${capabilities.backend} backend`,
          {
            hint: 'choose another name',
          },
        );
      }
      const { project } = principal;
      const checked = asked === undefined ? null : networks.checked(asked);
      const of = sandbox === undefined ? undefined : (await lookup.find(principal, sandbox)).id;
      // One transaction, so that the snapshot cannot be removed in between.
      return records.transaction(async (tx) => {
        const before = await tx.templates.get(project, name);
        const network = checked ?? (keepNetwork ? (before?.network ?? null) : null);
        await requireSecrets(tx, project, network);
        const row = {
          project,
          name,
          snapshot: (await registry.resolve(tx, project, snapshot, of)).id,
          createdAtMs: clock.now(),
          network,
          ...(config && { config }),
        };
        if (!before) await quota.requireRoom(tx, project, 'templates', 1);
        await tx.templates.save(row, { replace });
        await tx.events.append({
          type: 'template.saved',
          project,
          key: principal.key,
          data: { template: name, snapshot: row.snapshot },
        });
        return show(tx, row);
      });
    },

    async templates(principal) {
      const own = (await backendTemplates()).map((name) => ({
        name,
        snapshot: null,
        memory: false,
        createdAtMs: null,
        network: null,
      }));
      const saved: Template[] = [];
      for (const row of await records.templates.list(principal.project)) saved.push(await show(records, row));
      return [...own, ...saved];
    },

    async removeTemplate(principal, name) {
      const { project, key } = principal;
      const removed = await records.transaction(async (tx) => {
        const row = await tx.templates.get(project, name);
        if (!row) return undefined;
        await tx.templates.delete(project, name);
        await tx.events.append({ type: 'template.removed', project, key, data: { template: name } });
        return row;
      });
      if (!removed) return;
      // A snapshot of a removed sandbox may have been kept for the template alone.
      const snapshot = await records.snapshots.get(removed.snapshot);
      if (snapshot && !(await records.sandboxes.get(snapshot.sandbox))) await registry.dropAbandoned();
    },
  };
}
