/** E2B's API for templates: builds by the builder of its clients. */
import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { AnonymousClients } from '../../../http/authenticate.ts';
import { bodyOf } from '../../../http/request-body.ts';
import type { Builds } from '../../../../control/templates/builds/build.ts';
import type { Control } from '../../../../control/control.ts';
import type { Principal } from '../../../../control/tenants/principal.ts';
import { route, type Route } from '../../../http/route.ts';
import type { Refused } from '../../envd/credentials.ts';
import { StartBuildBody, toRecipe } from './recipe.ts';
import { showBuild, tagsOf } from './show-build.ts';
import { taggedTemplates } from './tagged-templates.ts';
import { DEFAULT_TAG, formatTemplateRef, parseTemplateRef } from './template-name.ts';
import type { UploadLinks } from './upload-links.ts';

export interface TemplateRouteOptions {
  control: Control;
  links: UploadLinks;
  onRefused: Refused;
  anonymous: AnonymousClients;
  /** Public address of the server. Default: the address that the client used. */
  publicUrl?: string;
}

const tag = 'e2b';
const MIB = 1024 * 1024;
const LOG_PAGE = 100;
const Name = z.string().min(1).max(200);
const OfTemplate = z.object({ id: Name });
const OfBuild = OfTemplate.extend({ build: z.uuid() });
const OfFiles = OfTemplate.extend({ hash: z.string().regex(/^[0-9a-f]{64}$/) });
const Tags = z.array(z.string().min(1).max(64)).max(50);

export function templateRoutes({
  control,
  links,
  onRefused,
  anonymous,
  publicUrl,
}: TemplateRouteOptions): Route[] {
  const { builds } = control;

  async function allowed<T>(request: IncomingMessage, check: () => Promise<T>): Promise<T> {
    try {
      return await check();
    } catch (error) {
      if (error instanceof CayError) {
        anonymous.requireTurn(request);
        onRefused(request, error);
      }
      throw error;
    }
  }

  return [
    route({
      method: 'post',
      path: '/v3/templates',
      name: 'e2bRequestBuild',
      summary: 'Announce a template that will be built',
      tag,
      body: z.looseObject({
        name: Name.optional(),
        alias: Name.optional(),
        tags: Tags.nullish(),
        cpuCount: z.int().min(1).max(1024).nullish(),
        memoryMB: z.int().min(16).nullish(),
        minFreeDiskMb: z.int().min(0).nullish(),
      }),
      answers: { 202: { description: 'What it will be called' } },
      async handle({ json, principal, body }) {
        const given = body.name ?? body.alias;
        if (given === undefined) throw new CayError('invalid_argument', 'A template needs a name');
        const { name, tag: inName } = parseTemplateRef(given);
        const tags = [...new Set([...(inName === undefined ? [] : [inName]), ...(body.tags ?? [])])];
        const names = (tags.length === 0 ? [DEFAULT_TAG] : tags).map((each) =>
          formatTemplateRef({ name, tag: each }),
        );
        const build = await builds.request(principal, {
          template: name,
          names,
          limits: {
            ...(body.cpuCount && { cpus: body.cpuCount }),
            ...(body.memoryMB && { memoryBytes: body.memoryMB * MIB }),
            ...(body.minFreeDiskMb && { diskBytes: Math.max(body.minFreeDiskMb, 16) * MIB }),
          },
        });
        return json(
          {
            templateID: name,
            buildID: build.id,
            public: false,
            names: [name],
            aliases: [name],
            tags: tagsOf(build),
          },
          202,
        );
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/files/{hash}',
      name: 'e2bGetUploadLink',
      summary: 'Get the address for the upload of build files',
      tag,
      params: OfFiles,
      query: z.looseObject({}),
      answers: { 201: { description: 'Whether they are here, and where they go' } },
      async handle({ json, request, principal, params }) {
        const { project } = principal;
        const url =
          originOf(request, publicUrl) +
          (await links.make({ project, template: params.id, hash: params.hash }));
        return json({ present: await builds.files.has(project, params.hash), url }, 201);
      },
    }),
    route({
      method: 'put',
      path: '/templates/{id}/files/{hash}',
      name: 'e2bUploadFiles',
      summary: 'Upload build files',
      tag,
      // The signature in the address is the credential.
      access: 'open',
      params: OfFiles,
      query: z.object({
        project: z.string().max(80),
        expires: z.string().max(20),
        signature: z.string().max(100),
      }),
      rawBody: 'application/octet-stream',
      answers: { 200: { description: 'Done' } },
      async handle({ context, request, params, query }) {
        const { project, hash } = await allowed(request, () =>
          links.require({ template: params.id, hash: params.hash }, query),
        );
        await builds.files.put(project, hash, bodyOf(request));
        return context.body(null, 200);
      },
    }),
    route({
      method: 'post',
      path: '/v2/templates/{id}/builds/{build}',
      name: 'e2bStartBuild',
      summary: 'Build a template',
      tag,
      params: OfBuild,
      body: StartBuildBody,
      maxBodyBytes: 8 * MIB,
      answers: { 202: { description: 'It is being built' } },
      async handle({ json, principal, params, body }) {
        await requireBuild(builds, principal, params);
        const recipe = toRecipe(body);
        await control.interpreter.prepare(principal, recipe.from);
        await builds.start(principal, params.build, recipe);
        return json({}, 202);
      },
    }),
    route({
      method: 'get',
      path: '/templates/{id}/builds/{build}/status',
      name: 'e2bGetBuild',
      summary: 'Get the status of a build',
      tag,
      params: OfBuild,
      query: z.looseObject({
        logsOffset: z.coerce.number().int().min(0).default(0),
        limit: z.coerce.number().int().min(0).max(LOG_PAGE).default(LOG_PAGE),
      }),
      answers: { 200: { description: 'The build' } },
      async handle({ json, principal, params, query: { logsOffset: offset, limit } }) {
        const build = await requireBuild(builds, principal, params);
        return json(showBuild(build, await builds.log(principal, build.id, { offset, limit })));
      },
    }),
    route({
      method: 'get',
      path: '/templates/aliases/{id}',
      name: 'e2bGetAlias',
      summary: 'Check whether a template exists',
      tag,
      params: OfTemplate,
      answers: { 200: { description: 'It does' } },
      async handle({ json, principal, params }) {
        const { name } = parseTemplateRef(params.id);
        if ((await taggedTemplates(control, principal, name)).length > 0)
          return json({ templateID: name, public: false });
        throw new CayError('not_found', `Template "${params.id.slice(0, 80)}" does not exist`);
      },
    }),
  ];
}

async function requireBuild(builds: Builds, principal: Principal, { id, build }: z.infer<typeof OfBuild>) {
  const found = await builds.get(principal, build);
  if (found.template === parseTemplateRef(id).name) return found;
  throw new CayError('not_found', `Template "${id.slice(0, 80)}" has no build "${build}"`);
}

/** The origin that the client used. */
function originOf(request: IncomingMessage, publicUrl: string | undefined): string {
  if (publicUrl !== undefined) return new URL(publicUrl).origin;
  const encrypted = (request.socket as TLSSocket).encrypted === true;
  return `${encrypted ? 'https' : 'http'}://${request.headers.host ?? 'localhost'}`;
}
