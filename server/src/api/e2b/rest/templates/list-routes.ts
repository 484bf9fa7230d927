/** Lists of templates, in E2B's API. */
import { CayError, LimitsSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../../control/control.ts';
import type { Principal } from '../../../../control/tenants/principal.ts';
import { route, type Route } from '../../../http/route.ts';
import { ENVD_VERSION, cpuCount } from '../show.ts';
import { buildIdOf, nameOf, taggedTemplates, type TaggedTemplate } from './tagged-templates.ts';
import { DEFAULT_TAG, parseTemplateRef } from './template-name.ts';

const tag = 'e2b';
const MIB = 1024 * 1024;

export function listRoutes({ control }: { control: Control }): Route[] {
  /** Names of the project's own templates, in order. Those that come with the server are nobody's. */
  async function ownNames(principal: Principal): Promise<string[]> {
    const own = (await control.templates(principal)).filter(({ snapshot }) => snapshot !== null);
    return [...new Set(own.map(nameOf))].toSorted();
  }

  /** The tag that a name alone stands for, or the newest. */
  async function show(principal: Principal, name: string) {
    const tagged = await taggedTemplates(control, principal, name);
    const template = tagged.find((each) => each.tag === DEFAULT_TAG) ?? newest(tagged);
    if (!template) throw new CayError('not_found', `Template "${name.slice(0, 80)}" does not exist`);
    const buildID = await buildIdOf(control, principal, template);
    const build =
      template.snapshot === null ? undefined : await control.builds.of(principal, template.snapshot);
    const limits = LimitsSchema.parse(build?.limits ?? {});
    const times = tagged.map(({ createdAtMs }) => createdAtMs ?? 0);
    return {
      templateID: name,
      buildID,
      cpuCount: cpuCount({ limits }),
      memoryMB: Math.floor((limits.memoryBytes ?? 0) / MIB),
      diskSizeMB: Math.floor((limits.diskBytes ?? 0) / MIB),
      public: template.snapshot === null,
      aliases: [name],
      names: [name],
      createdAt: new Date(Math.min(...times)).toISOString(),
      updatedAt: new Date(Math.max(...times)).toISOString(),
      createdBy: null,
      // Nobody counts how often a template is used.
      lastSpawnedAt: null,
      spawnCount: 0,
      buildCount: new Set(tagged.map(({ snapshot }) => snapshot)).size,
      envdVersion: ENVD_VERSION,
      buildStatus: 'ready',
    };
  }

  const all = route({
    method: 'get',
    path: '/templates',
    name: 'e2bListTemplates',
    summary: 'List templates',
    tag,
    query: z.looseObject({}),
    answers: { 200: { description: 'The templates' } },
    async handle({ json, principal }) {
      const names = await ownNames(principal);
      return json(await Promise.all(names.map((name) => show(principal, name))));
    },
  });

  const paged = route({
    method: 'get',
    path: '/v2/templates',
    name: 'e2bListTemplates',
    summary: 'List templates',
    tag,
    query: z.looseObject({
      limit: z.coerce.number().int().min(1).max(100).default(100),
      nextToken: z.string().max(256).optional(),
    }),
    answers: { 200: { description: 'A page' } },
    async handle({ json, response, principal, query }) {
      const { nextToken: after, limit } = query;
      const names = (await ownNames(principal)).filter((name) => after === undefined || name > after);
      const page = names.slice(0, limit);
      if (names.length > page.length) response.setHeader('X-Next-Token', page.at(-1)!);
      return json(await Promise.all(page.map((name) => show(principal, name))));
    },
  });

  const one = route({
    method: 'get',
    path: '/templates/{id}',
    name: 'e2bGetTemplate',
    summary: 'Get a template with its builds',
    tag,
    params: z.object({ id: z.string().min(1).max(200) }),
    query: z.looseObject({}),
    answers: { 200: { description: 'The template' } },
    async handle({ json, principal, params }) {
      const { name } = parseTemplateRef(params.id);
      const shown = await show(principal, name);
      const tagged = await taggedTemplates(control, principal, name);
      const builds = await Promise.all(
        tagged.map(async (template) => ({
          buildID: await buildIdOf(control, principal, template),
          status: 'ready',
          createdAt: new Date(template.createdAtMs ?? 0).toISOString(),
          updatedAt: new Date(template.createdAtMs ?? 0).toISOString(),
          finishedAt: new Date(template.createdAtMs ?? 0).toISOString(),
          cpuCount: shown.cpuCount,
          memoryMB: shown.memoryMB,
          diskSizeMB: shown.diskSizeMB,
          envdVersion: ENVD_VERSION,
        })),
      );
      return json({ ...shown, builds: [...new Map(builds.map((build) => [build.buildID, build])).values()] });
    },
  });

  const defaults = route({
    method: 'get',
    path: '/default-templates',
    name: 'e2bListDefaultTemplates',
    summary: 'List templates that everybody has',
    tag,
    query: z.looseObject({}),
    answers: { 200: { description: 'None' } },
    handle: ({ json }) => json([]),
  });

  return [all, paged, one, defaults];
}

function newest(tagged: TaggedTemplate[]): TaggedTemplate | undefined {
  return tagged.toSorted((a, b) => (b.createdAtMs ?? 0) - (a.createdAtMs ?? 0))[0];
}
