import {
  ChangeModeSchema,
  ChangeOwnerSchema,
  MakeDirectorySchema,
  MakeSymlinkSchema,
  MoveFileSchema,
  UnpackedSchema,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import { lentBodyOf } from '../http/request-body.ts';
import type { Control } from '../../control/control.ts';
import type { Files } from '../../guest/guest.ts';
import { PathQuery, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

const tag = 'files';
const TAR = 'application/x-tar';

export function fileChangeRoutes(control: Pick<Control, 'files'>): Route[] {
  /** A change that has no answer. */
  const change = <Body extends z.ZodType<{ user?: string | undefined }>>(
    verb: string,
    name: string,
    summary: string,
    body: Body,
    apply: (files: Files, body: z.output<Body>, signal: AbortSignal) => Promise<void>,
  ) =>
    route({
      method: 'post',
      path: `/v1/sandboxes/{id}/files/${verb}`,
      name,
      summary,
      tag,
      params: SandboxParams,
      body,
      answers: { 204: { description: 'Done' } },
      async handle({ empty, principal, params, body: asked, signal }) {
        const { files } = await control.files(principal, params.id, asked.user);
        return empty(await apply(files, asked, signal));
      },
    });

  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/files/mkdir',
      name: 'makeDirectory',
      summary: 'Make a directory and its missing parents',
      tag,
      params: SandboxParams,
      body: MakeDirectorySchema,
      answers: {
        200: {
          description: 'Whether it was made or was there already',
          schema: z.object({ created: z.boolean() }),
        },
      },
      async handle({ json, principal, params, body, signal }) {
        const { files } = await control.files(principal, params.id, body.user);
        const created = await files.mkdir(body.path, { mode: body.mode, signal });
        return json({ created });
      },
    }),
    change('move', 'moveFile', 'Move or rename', MoveFileSchema, (files, { from, to, overwrite }, signal) =>
      files.move(from, to, { overwrite, signal }),
    ),
    change('chmod', 'changeMode', 'Change permissions', ChangeModeSchema, (files, body, signal) =>
      files.chmod(body.path, body.mode, { recursive: body.recursive, signal }),
    ),
    change('chown', 'changeOwner', 'Change the owner', ChangeOwnerSchema, (files, body, signal) =>
      files.chown(body.path, body.owner, { recursive: body.recursive, signal }),
    ),
    change('symlink', 'makeSymlink', 'Make a symbolic link', MakeSymlinkSchema, (files, body, signal) =>
      files.symlink(body.path, body.target, { signal }),
    ),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files/tar',
      name: 'packFiles',
      summary: 'Stream the tree below a directory as a tar archive',
      tag,
      params: SandboxParams,
      query: PathQuery.extend({
        paths: z.union([z.string().max(4096), z.array(z.string().max(4096)).max(1000)]).optional(),
      }).strict(),
      answers: { 200: { description: 'A POSIX tar archive', media: [TAR] } },
      async handle({ context, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        const paths = query.paths === undefined ? undefined : [query.paths].flat();
        return bytesAnswer(context, await files.tar(query.path, { paths, signal }), {
          headers: { 'Content-Type': TAR, 'Cache-Control': 'no-store' },
        });
      },
    }),
    route({
      method: 'put',
      path: '/v1/sandboxes/{id}/files/tar',
      name: 'unpackFiles',
      summary: 'Unpack a tar archive below a directory, which is created',
      tag,
      params: SandboxParams,
      query: PathQuery,
      rawBody: TAR,
      answers: { 200: { description: 'What was unpacked', schema: UnpackedSchema } },
      async handle({ json, request, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        const unpacked = await files.untar(query.path, lentBodyOf(request), { signal });
        return json(unpacked);
      },
    }),
  ];
}
