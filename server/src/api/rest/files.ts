import { FileEventSchema, FileInfoSchema, FileListSchema } from '@cay/sdk/protocol';
import { lentBodyOf } from '../http/request-body.ts';
import type { Control } from '../../control/control.ts';
import { JsonList } from '../../lib/json-pieces.ts';
import { collectFiles } from './collect-files.ts';
import { contentAnswer } from './file-content.ts';
import { Count, Flag, Octal, PathQuery, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { sendLargeJson } from '../http/send-large-json.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';
import { traceOf } from '../http/trace.ts';
import { attributeRoutes } from './file-attributes.ts';

const tag = 'files';
/** Bounds of a JSON answer. A stream has none. */
const LIST_MAX = 10_000;
const LIST_BYTES = 8 * 1024 * 1024;

export function fileRoutes(control: Pick<Control, 'files'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files',
      name: 'readFile',
      summary: "Read a file's content",
      description: 'Takes a `Range` of bytes. `HEAD` answers the size alone.',
      tag,
      headers: { Range: 'For example `bytes=0-1023`' },
      params: SandboxParams,
      query: PathQuery,
      answers: {
        200: { description: 'The content', media: ['application/octet-stream'] },
        206: { description: 'The range', media: ['application/octet-stream'] },
        416: { description: 'The range lies beyond the end' },
      },
      async handle({ context, request, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        return contentAnswer(context, files, query.path, {
          head: request.method === 'HEAD',
          range: request.headers.range,
          signal,
        });
      },
    }),
    route({
      method: 'put',
      path: '/v1/sandboxes/{id}/files',
      name: 'writeFile',
      summary: "Write a file's content",
      description:
        'Creates missing parents. The file is replaced in one step when all of the body has arrived.',
      tag,
      params: SandboxParams,
      query: PathQuery.extend({
        mode: Octal.optional(),
        append: Flag.optional(),
        exclusive: Flag.optional(),
      }).strict(),
      rawBody: 'application/octet-stream',
      answers: { 200: { description: 'The file as it is now', schema: FileInfoSchema } },
      async handle({ json, request, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        const { mode, append, exclusive } = query;
        const info = await files.write(query.path, lentBodyOf(request), { mode, append, exclusive, signal });
        return json(info);
      },
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}/files',
      name: 'removeFile',
      summary: 'Remove a file or a directory',
      tag,
      params: SandboxParams,
      query: PathQuery.extend({ recursive: Flag.optional() }).strict(),
      answers: { 204: { description: 'It is gone' } },
      async handle({ empty, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        return empty(await files.remove(query.path, { recursive: query.recursive, signal }));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files/stat',
      name: 'statFile',
      summary: 'Get the type, size and attributes of a path',
      tag,
      params: SandboxParams,
      query: PathQuery.extend({ follow: Flag.optional() }).strict(),
      answers: { 200: { description: 'The file', schema: FileInfoSchema } },
      async handle({ json, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        return json(await files.stat(query.path, { follow: query.follow, signal }));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files/list',
      name: 'listFiles',
      summary: 'List a directory',
      description: `A JSON answer has at most ${LIST_MAX} entries and ${LIST_BYTES} bytes, and says if there are more; a stream has them all.`,
      tag,
      params: SandboxParams,
      query: PathQuery.extend({ depth: Count(1000).optional() }).strict(),
      answers: {
        200: {
          description: 'Files, depth first, in the order of names',
          schema: FileListSchema,
          media: STREAMS,
          events: FileInfoSchema,
        },
      },
      async handle({ context, response, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        const listed = files.list(query.path, { depth: Math.max(1, query.depth ?? 1), signal });
        const format = streamFormat(context);
        if (format) return eventsAnswer(context, listed, { format });
        const kept = new JsonList();
        const { more: truncated } = await collectFiles(listed, {
          entries: LIST_MAX,
          bytes: LIST_BYTES,
          share: traceOf(response).share,
          owner: principal.project,
          keep: (info) => kept.add(info),
        });
        return sendLargeJson(response, { files: kept, truncated }, principal.project);
      },
    }),
    ...attributeRoutes(control),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/files/watch',
      name: 'watchFiles',
      summary: 'Stream what changes below a path',
      description: 'The watch is in place when the answer begins.',
      budget: 'stream',
      tag,
      params: SandboxParams,
      query: PathQuery.extend({ recursive: Flag.optional() }).strict(),
      answers: { 200: { description: 'A stream of file events', media: STREAMS, events: FileEventSchema } },
      async handle({ context, principal, params, query, signal }) {
        const { files } = await control.files(principal, params.id, query.user);
        return eventsAnswer(context, await files.watch(query.path, { recursive: query.recursive, signal }));
      },
    }),
  ];
}
