import {
  ForkSchema,
  ForkedSchema,
  LeaseSchema,
  MovedSandboxSchema,
  MoveSandboxSchema,
  PauseSandboxSchema,
  RollbackSchema,
  RolledBackSchema,
  SandboxSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { requireOwnLabels } from '../e2b/labels.ts';
import { SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';

const one = { 200: { description: 'The sandbox', schema: SandboxSchema } };

/** Routes of rollback, fork, move, pause, resume and lease. */
export function travelRoutes(control: Control): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/rollback',
      name: 'rollbackSandbox',
      summary: 'Put a sandbox back to a snapshot or turn',
      description:
        'What it was becomes a snapshot first, so this can be undone. Files only, its commands end; with `memory` the processes of the snapshot go on. ' +
        'If it fails the sandbox is as it was.',
      tag: 'snapshots',
      params: SandboxParams,
      body: RollbackSchema,
      answers: {
        200: { description: 'The sandbox, and the snapshot of what it was', schema: RolledBackSchema },
      },
      handle: async ({ json, principal, params, body }) =>
        json(await control.rollback(principal, params.id, body)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/fork',
      name: 'forkSandbox',
      summary: 'Make sandboxes that go on from what this one is',
      description: 'One capture, `count` children: all of them or none. The parent keeps running.',
      tag: 'snapshots',
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      params: SandboxParams,
      body: ForkSchema,
      answers: {
        201: { description: 'The children, and the snapshot that they come from', schema: ForkedSchema },
      },
      async handle({ json, request, principal, params, body }) {
        requireOwnLabels(body.labels, (await control.get(principal, params.id)).labels);
        return json(
          await control.fork(principal, params.id, body, {
            idempotencyKey: idempotencyKeyOf(request.headers),
          }),
          201,
        );
      },
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/move',
      name: 'moveSandbox',
      summary: 'Move a sandbox to another platform of this server',
      description:
        'It keeps its id, name, labels, policy, limits, environment, snapshots and turns. What cannot go along is in the plan, and has to be allowed by `drop`; `dryRun` shows the plan alone. ' +
        'If it fails the sandbox is where it was.',
      tag: 'sandboxes',
      params: SandboxParams,
      body: MoveSandboxSchema,
      answers: { 200: { description: 'The sandbox, and what went along', schema: MovedSandboxSchema } },
      handle: async ({ json, principal, params, body }) =>
        json(await control.move(principal, params.id, body)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/pause',
      name: 'pauseSandbox',
      summary: 'Pause a sandbox; any call that needs it wakes it',
      tag: 'sandboxes',
      params: SandboxParams,
      body: PauseSandboxSchema,
      answers: one,
      handle: async ({ json, principal, params, body }) =>
        json(await control.pause(principal, params.id, body)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/resume',
      name: 'resumeSandbox',
      summary: 'Wake a paused sandbox',
      tag: 'sandboxes',
      params: SandboxParams,
      answers: one,
      handle: async ({ json, principal, params }) => json(await control.resume(principal, params.id)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/lease',
      name: 'leaseSandbox',
      summary: 'Keep a sandbox from being idle for a while',
      tag: 'sandboxes',
      params: SandboxParams,
      body: LeaseSchema,
      answers: one,
      handle: async ({ json, principal, params, body }) =>
        json(await control.lease(principal, params.id, body)),
    }),
  ];
}
