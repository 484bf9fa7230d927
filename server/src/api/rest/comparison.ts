import type { ServerResponse } from 'node:http';
import {
  AbsolutePathSchema,
  CompareSchema,
  DiffStatSchema,
  FileChangeSchema,
  SnapshotRefSchema,
  type FileChange,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control, Comparison } from '../../control/control.ts';
import { patchOf } from '../../control/snapshots/patches/patch.ts';
import { statOf } from '../../control/snapshots/patches/stat.ts';
import { tarNames } from '../../control/snapshots/patches/tar-names.ts';
import { SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { sendLargeJson } from '../http/send-large-json.ts';
import { begun, bytesAnswer, eventsAnswer, STREAMS } from '../http/stream-answer.ts';

const tag = 'snapshots';
const TAR = 'application/x-tar';
const PATCH = 'text/x-diff';

const Paths = z
  .union([AbsolutePathSchema, z.array(AbsolutePathSchema).max(1000)])
  .transform((paths) => [paths].flat())
  .optional()
  .describe('These paths and what is below them; may be repeated');

const DiffQuery = CompareSchema.extend({
  path: Paths,
  format: z
    .enum(['changes', 'patch', 'stat'])
    .default('changes')
    .describe('`patch` is one that `git apply` takes'),
  relative: AbsolutePathSchema.optional().describe('Paths of a patch are relative to this directory'),
}).strict();

const ExportQuery = z.object({ at: SnapshotRefSchema.default('now'), path: Paths }).strict();

export function comparisonRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/diff',
      name: 'diffSandbox',
      summary: 'Compare two snapshots, turns, or now',
      budget: 'helper',
      tag,
      params: SandboxParams,
      query: DiffQuery,
      answers: {
        200: {
          description: 'Changes in the order of paths, a patch, or how much has changed',
          schema: DiffStatSchema,
          media: [...STREAMS, PATCH],
          events: FileChangeSchema,
        },
      },
      async handle({ context, response, principal, params, query, signal }) {
        const { from, to, path, format, relative } = query;
        const comparison = releasedWith(
          response,
          await control.compare(principal, params.id, { from, to }, { signal }),
        );
        const changes = below(comparison.changes, path ?? (relative === undefined ? undefined : [relative]));
        if (format === 'changes') return eventsAnswer(context, await begun(changes));
        const sides = {
          changes,
          before: (name: string) => comparison.before.read(name, { signal }),
          after: (name: string) => comparison.after.read(name, { signal }),
          signal,
          ...(relative !== undefined && { relativeTo: relative }),
          files: (name: string) => tarNames(comparison.after.tar([name], { signal })),
        };
        if (format === 'patch')
          return bytesAnswer(context, patchOf(sides), { headers: { 'Content-Type': PATCH } });
        return sendLargeJson(response, await statOf(sides), principal.project);
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/export',
      name: 'exportFiles',
      summary: 'Get chosen files of a snapshot, a turn, or now, as a tar stream',
      budget: 'helper',
      tag,
      params: SandboxParams,
      query: ExportQuery,
      answers: { 200: { description: 'The files', media: [TAR] } },
      async handle({ context, response, principal, params, query, signal }) {
        const { at, path } = query;
        const comparison = releasedWith(
          response,
          await control.compare(principal, params.id, { from: at, to: at }, { signal }),
        );
        return bytesAnswer(context, comparison.after.tar(path ?? ['/'], { signal }), {
          headers: { 'Content-Type': TAR },
        });
      },
    }),
  ];
}

/** Changes at these paths and below, and moves of directories above them. */
async function* below(
  changes: AsyncIterable<FileChange>,
  paths: string[] | undefined,
): AsyncGenerator<FileChange> {
  const holds = (parent: string, path: string) =>
    path === parent || path.startsWith(parent.endsWith('/') ? parent : `${parent}/`);
  for await (const change of changes) {
    const { path, from, type } = change;
    const wanted = (paths ?? ['/']).some(
      (parent) =>
        holds(parent, path) ||
        (from !== undefined && (holds(parent, from) || (type === 'directory' && holds(path, parent)))),
    );
    if (wanted) yield change;
  }
}

/** Releases the comparison when the answer is closed, also if the client did not read it. */
function releasedWith(response: ServerResponse, comparison: Comparison): Comparison {
  // What cannot be removed now is removed at the next start of the server.
  const release = () => void comparison.release().catch(() => {});
  if (response.closed || response.destroyed) release();
  else response.once('close', release);
  return comparison;
}
