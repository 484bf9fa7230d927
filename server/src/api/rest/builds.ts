import {
  BuildContextSchema,
  BuildLineSchema,
  BuildTemplateSchema,
  TemplateBuildPageSchema,
  TemplateBuildSchema,
  type BuildLine,
  type TemplateBuild,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import type { Build } from '../../control/templates/builds/build.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import { bodyOf } from '../http/request-body.ts';
import { route, type Route } from '../http/route.ts';
import { begun, eventsAnswer, STREAMS } from '../http/stream-answer.ts';

const tag = 'templates';
const MIB = 1024 * 1024;
const MOST_LISTED = 100;
const BuildParams = z.object({ build: z.uuid() });

export function buildRoutes({ builds }: Pick<Control, 'builds'>): Route[] {
  async function* lines(
    principal: Principal,
    id: string,
    offset: number,
    signal: AbortSignal,
  ): AsyncGenerator<BuildLine> {
    for await (const log of builds.follow(principal, id, { offset, signal })) yield { log };
    yield { build: show(await builds.get(principal, id)) };
  }
  return [
    route({
      method: 'post',
      path: '/v1/builds/contexts',
      name: 'uploadBuildContext',
      summary: 'Upload the files for a build',
      description:
        'A tar archive, which may be compressed by gzip. What its `.dockerignore` names is left out. It is kept for later builds as long as there is room.',
      tag,
      budget: 'helper',
      rawBody: 'application/x-tar',
      answers: { 201: { description: 'What a build names it by', schema: BuildContextSchema } },
      handle: async ({ json, request, principal }) =>
        json(await builds.files.add(principal.project, bodyOf(request)), 201),
    }),
    route({
      method: 'post',
      path: '/v1/builds',
      name: 'buildTemplate',
      summary: 'Build a template from a Dockerfile',
      description:
        'Answers at once. Each step runs in a sandbox, with the network policy of the build; steps that were run before are taken from their snapshots.',
      tag,
      body: BuildTemplateSchema,
      maxBodyBytes: 8 * MIB,
      answers: { 201: { description: 'It waits or is being built', schema: TemplateBuildSchema } },
      handle: async ({ json, principal, body }) =>
        json(show(await builds.buildDockerfile(principal, body)), 201),
    }),
    route({
      method: 'get',
      path: '/v1/builds',
      name: 'listBuilds',
      summary: 'List builds of templates, the newest first',
      tag,
      answers: { 200: { description: 'The newest', schema: TemplateBuildPageSchema } },
      handle: async ({ json, principal }) =>
        json({ builds: (await builds.list(principal, MOST_LISTED)).map(show) }),
    }),
    route({
      method: 'get',
      path: '/v1/builds/{build}',
      name: 'getBuild',
      summary: 'Get a build',
      tag,
      params: BuildParams,
      answers: { 200: { description: 'The build', schema: TemplateBuildSchema } },
      handle: async ({ json, principal, params }) => json(show(await builds.get(principal, params.build))),
    }),
    route({
      method: 'get',
      path: '/v1/builds/{build}/log',
      name: 'followBuild',
      summary: 'Read the log of a build as it comes',
      description:
        'Ends with the build when that has ended. A caller that disconnects does not end the build.',
      tag,
      budget: 'stream',
      params: BuildParams,
      query: z.object({ offset: z.coerce.number().int().min(0).default(0) }).strict(),
      answers: { 200: { description: 'Entries, then the build', media: STREAMS, events: BuildLineSchema } },
      handle: async ({ context, principal, params, query, signal }) =>
        eventsAnswer(context, await begun(lines(principal, params.build, query.offset, signal))),
    }),
    route({
      method: 'delete',
      path: '/v1/builds/{build}',
      name: 'cancelBuild',
      summary: 'Cancel a build',
      description: 'Resolves when its sandboxes are gone. A build that has ended stays as it is.',
      tag,
      params: BuildParams,
      answers: { 200: { description: 'The build', schema: TemplateBuildSchema } },
      handle: async ({ json, principal, params }) => json(show(await builds.cancel(principal, params.build))),
    }),
  ];
}

function show({
  id,
  template,
  names,
  state,
  snapshot,
  failure,
  createdAtMs,
  endedAtMs,
}: Build): TemplateBuild {
  return { id, template, names, state, snapshot, failure, createdAtMs, endedAtMs };
}
