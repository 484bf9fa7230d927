import {
  ImportSnapshotSchema,
  ImportedSnapshotSchema,
  ListSnapshotsSchema,
  SnapshotPageSchema,
  SnapshotSchema,
  SnapshotTreeSchema,
  TakeSnapshotSchema,
  TakeTurnSchema,
} from '@cay/sdk/protocol';
import { bodyOf } from '../http/request-body.ts';
import type { Control } from '../../control/control.ts';
import { Flag, SandboxParams, SnapshotParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { bytesAnswer } from '../http/stream-answer.ts';

const tag = 'snapshots';
const ARCHIVE = 'application/vnd.cay.snapshot';
const one = { 200: { description: 'The snapshot', schema: SnapshotSchema } };
const taken = { 201: { description: 'The snapshot', schema: SnapshotSchema } };

export function snapshotRoutes(control: Control): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/snapshots',
      name: 'takeSnapshot',
      summary: 'Keep what a sandbox is now',
      description:
        'The sandbox keeps running. With `memory` the snapshot has its processes too, if the runtime can capture them.',
      tag,
      params: SandboxParams,
      body: TakeSnapshotSchema,
      answers: taken,
      handle: async ({ json, principal, params, body }) =>
        json(await control.snapshot(principal, params.id, body), 201),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/turns',
      name: 'takeTurn',
      summary: 'Wait for running commands, keep what the sandbox is, and number it',
      description:
        'Numbers only grow. What still runs after `waitMs` is in the snapshot halfway, and `quiet` is false.',
      tag,
      params: SandboxParams,
      body: TakeTurnSchema,
      answers: taken,
      handle: async ({ json, principal, params, body }) =>
        json(await control.turn(principal, params.id, body), 201),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/snapshots',
      name: 'listSandboxSnapshots',
      summary: 'List the snapshots of a sandbox, newest first',
      tag,
      params: SandboxParams,
      query: ListSnapshotsSchema.omit({ sandbox: true }),
      answers: { 200: { description: 'A page of snapshots', schema: SnapshotPageSchema } },
      handle: async ({ json, principal, params, query }) =>
        json(await control.snapshots(principal, { ...query, sandbox: params.id })),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/tree',
      name: 'getSnapshotTree',
      summary: 'Get the snapshots of a sandbox and of its forks as a tree',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'The tree', schema: SnapshotTreeSchema } },
      handle: async ({ json, principal, params }) => json(await control.tree(principal, params.id)),
    }),
    route({
      method: 'get',
      path: '/v1/snapshots',
      name: 'listSnapshots',
      summary: 'List snapshots, newest first',
      tag,
      query: ListSnapshotsSchema,
      answers: { 200: { description: 'A page of snapshots', schema: SnapshotPageSchema } },
      handle: async ({ json, principal, query }) => json(await control.snapshots(principal, query)),
    }),
    route({
      method: 'post',
      path: '/v1/snapshots',
      name: 'importSnapshot',
      summary: 'Take in a snapshot from an archive',
      description:
        'Whole or not at all: an archive that is cut short or altered is refused. Memory is taken in if this installation has signed the archive; ' +
        'that of any other is left out and `memoryDropped` says why, unless an admin passes `allowForeignMemory`.',
      budget: 'helper',
      tag,
      query: ImportSnapshotSchema.pick({ name: true, platform: true }).extend({
        allowForeignMemory: Flag.default(false),
      }),
      rawBody: ARCHIVE,
      answers: { 201: { description: 'The snapshot', schema: ImportedSnapshotSchema } },
      handle: async ({ json, request, principal, query, signal }) =>
        json(await control.importSnapshot(principal, bodyOf(request), query, { signal }), 201),
    }),
    route({
      method: 'get',
      path: '/v1/snapshots/{snapshot}',
      name: 'getSnapshot',
      summary: 'Get a snapshot',
      tag,
      params: SnapshotParams,
      answers: one,
      handle: async ({ json, principal, params }) =>
        json(await control.getSnapshot(principal, params.snapshot)),
    }),
    route({
      method: 'delete',
      path: '/v1/snapshots/{snapshot}',
      name: 'removeSnapshot',
      summary: 'Remove a snapshot',
      description:
        'What descends from it becomes its parent’s. Refused while a sandbox needs it or a template is made of it.',
      tag,
      params: SnapshotParams,
      answers: { 204: { description: 'It is gone' } },
      handle: async ({ empty, principal, params }) =>
        empty(await control.removeSnapshot(principal, params.snapshot)),
    }),
    route({
      method: 'get',
      path: '/v1/snapshots/{snapshot}/archive',
      name: 'exportSnapshot',
      summary: 'Get a snapshot as one portable archive',
      budget: 'helper',
      tag,
      params: SnapshotParams,
      answers: { 200: { description: 'The archive', media: [ARCHIVE] } },
      async handle({ context, principal, params, signal }) {
        const { data } = await control.exportSnapshot(principal, params.snapshot, { signal });
        return bytesAnswer(context, data, { headers: { 'Content-Type': ARCHIVE } });
      },
    }),
  ];
}
