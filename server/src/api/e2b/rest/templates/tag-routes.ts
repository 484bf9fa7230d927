/** Tags of templates, in E2B's API. */
import { CayError, isCayError, type SnapshotId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../../control/control.ts';
import type { Principal } from '../../../../control/tenants/principal.ts';
import { route, type Route } from '../../../http/route.ts';
import { buildIdOf, taggedTemplates, type TaggedTemplate } from './tagged-templates.ts';
import { DEFAULT_TAG, formatTemplateRef, parseTemplateRef } from './template-name.ts';

const tag = 'e2b';
const Name = z.string().min(1).max(200);
const OfTemplate = z.object({ id: Name });
const Tags = z.array(z.string().min(1).max(64)).max(50);
const Uuid = z.uuid();

export function tagRoutes({ control }: { control: Control }): Route[] {
  /** Rejects `not_found` for a name that no template has. */
  async function required(principal: Principal, text: string): Promise<TaggedTemplate[]> {
    const found = await taggedTemplates(control, principal, parseTemplateRef(text).name);
    if (found.length > 0) return found;
    throw new CayError('not_found', `Template "${text.slice(0, 80)}" does not exist`);
  }

  /** `name:tag`, or `name:build`, by which a tag can be given back to an earlier build. */
  async function target(
    principal: Principal,
    text: string,
  ): Promise<{ snapshot: SnapshotId; buildID: string; name: string }> {
    const { name, tag: given = DEFAULT_TAG } = parseTemplateRef(text);
    const missing = new CayError('not_found', `Template "${text.slice(0, 80)}" does not exist`);
    if (Uuid.safeParse(given).success) {
      const build = await builtAs(principal, given);
      if (build?.template !== name || build.snapshot === null) throw missing;
      return { snapshot: build.snapshot, buildID: build.id, name };
    }
    const found = (await taggedTemplates(control, principal, name)).find((each) => each.tag === given);
    if (!found) throw missing;
    if (found.snapshot === null)
      throw new CayError('permission_denied', `Template "${found.name}" comes with the server`);
    return { snapshot: found.snapshot, buildID: await buildIdOf(control, principal, found), name };
  }

  async function builtAs(principal: Principal, id: string) {
    try {
      return await control.builds.get(principal, id);
    } catch (error) {
      if (isCayError(error, 'not_found')) return undefined;
      throw error;
    }
  }

  return [
    route({
      method: 'post',
      path: '/templates/tags',
      name: 'e2bAssignTags',
      summary: 'Give a template further tags',
      tag,
      body: z.looseObject({ target: Name, tags: Tags.min(1) }),
      answers: { 201: { description: 'Done' } },
      async handle({ json, principal, body }) {
        const { snapshot, buildID, name } = await target(principal, body.target);
        const names = body.tags.map((each) => formatTemplateRef({ name, tag: each }));
        for (const each of names) await control.saveTemplate(principal, each, { snapshot, replace: true });
        return json({ buildID, tags: body.tags }, 201);
      },
    }),
    route({
      method: 'delete',
      path: '/templates/tags',
      name: 'e2bRemoveTags',
      summary: 'Take tags from a template',
      tag,
      body: z.looseObject({ name: Name, tags: Tags.min(1) }),
      answers: { 204: { description: 'Done' } },
      async handle({ empty, principal, body }) {
        await required(principal, body.name);
        if (body.tags.includes(DEFAULT_TAG))
          throw new CayError('invalid_argument', `The tag "${DEFAULT_TAG}" cannot be taken from a template`, {
            hint: 'remove the template',
          });
        const { name } = parseTemplateRef(body.name);
        for (const each of body.tags)
          await control.removeTemplate(principal, formatTemplateRef({ name, tag: each }));
        return empty();
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/tags',
      name: 'e2bListTags',
      summary: "List a template's tags",
      tag,
      params: OfTemplate,
      answers: { 200: { description: 'The tags' } },
      async handle({ json, principal, params }) {
        const found = await required(principal, params.id);
        return json(
          await Promise.all(
            found.map(async (template) => ({
              tag: template.tag,
              buildID: await buildIdOf(control, principal, template),
              createdAt: createdAt(template),
            })),
          ),
        );
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/tags/count',
      name: 'e2bCountTags',
      summary: "Count a template's tags",
      tag,
      params: OfTemplate,
      answers: { 200: { description: 'How many there are' } },
      async handle({ json, principal, params }) {
        return json({ total: (await required(principal, params.id)).length });
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/tags/exists',
      name: 'e2bHasTag',
      summary: 'Check whether a template has a tag',
      tag,
      params: OfTemplate,
      query: z.object({ tag: z.string().min(1).max(64) }),
      answers: { 200: { description: 'Whether it has' } },
      async handle({ json, principal, params, query }) {
        const found = await required(principal, params.id);
        const normalizedTag = query.tag.trim().toLowerCase();
        return json({ exists: found.some((template) => template.tag === normalizedTag), normalizedTag });
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/tags/groups',
      name: 'e2bListTagGroups',
      summary: "List a template's tags with the builds that have them",
      tag,
      params: OfTemplate,
      query: z.looseObject({ search: z.string().max(64).optional() }),
      answers: { 200: { description: 'The tags' } },
      async handle({ json, principal, params, query }) {
        const { search = '' } = query;
        const found = (await required(principal, params.id)).filter((each) => each.tag.includes(search));
        const tags = await Promise.all(
          found.map(async (template) => ({
            tag: template.tag,
            // Which builds had it before is not kept.
            assignments: [await assignmentOf(principal, template)],
            hasMore: false,
          })),
        );
        return json({ tags, nextCursor: null });
      },
    }),
  ];

  async function assignmentOf(principal: Principal, template: TaggedTemplate) {
    const buildId = await buildIdOf(control, principal, template);
    const build = await builtAs(principal, buildId);
    const atMs = template.createdAtMs ?? 0;
    return {
      assignmentId: buildId,
      buildId,
      assignedAt: createdAt(template),
      buildCreatedAt: new Date(build?.createdAtMs ?? atMs).toISOString(),
      buildFinishedAt: new Date(build?.endedAtMs ?? atMs).toISOString(),
    };
  }
}

function createdAt({ createdAtMs }: TaggedTemplate): string {
  return new Date(createdAtMs ?? 0).toISOString();
}
