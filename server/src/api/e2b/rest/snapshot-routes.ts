/**
 * E2B's API for pauses, snapshots and forks. They include memory by default, and are refused where the
 * runtime cannot capture it.
 */
import { CayError, type Sandbox } from '@cay/sdk/protocol';
import { z } from 'zod';
import { route, type Route } from '../../http/route.ts';
import { parseE2bId } from '../sandbox-id.ts';
import { requireLimits } from '../../../policy/bound-limits.ts';
import { TimeoutSeconds, timeoutMs } from './create.ts';
import { findSandbox, type E2bRouteOptions } from './starting-routes.ts';
import { e2bState, showAccess } from './show.ts';
import { nameIt, named, namesOf, removeNamed, showSnapshot, snapshotIdOf } from './snapshot-names.ts';
import { formatTemplateRef, parseTemplateRef } from './templates/template-name.ts';

const tag = 'e2b';
const Params = z.object({ id: z.string().max(80) });
const MOST_FORKS = 100;

export function snapshotRoutes({ control, tokens, domainOf }: E2bRouteOptions): Route[] {
  const pausing = new Map<string, Promise<unknown>>();

  /** Callers that ask for the same while it is under way wait for one and get its outcome. */
  async function together(key: string, work: () => Promise<unknown>): Promise<void> {
    let under = pausing.get(key);
    if (!under) {
      under = work().finally(() => pausing.delete(key));
      pausing.set(key, under);
    }
    await under;
  }

  return [
    route({
      method: 'post',
      path: '/sandboxes/{id}/pause',
      name: 'e2bPauseSandbox',
      summary: 'Pause a sandbox',
      tag,
      params: Params,
      body: z.looseObject({ memory: z.boolean().nullish() }),
      answers: { 204: { description: 'Done' } },
      async handle({ empty, principal, params, body }) {
        const sandbox = await findSandbox(control, principal, params.id);
        if (e2bState(sandbox.state) === 'paused')
          throw new CayError('conflict', `Sandbox "${params.id}" is paused already`);
        await together(`${sandbox.id} ${body.memory !== false}`, () =>
          body.memory === false
            ? control.stop(principal, sandbox.id)
            : control
                .pause(principal, sandbox.id, { as: 'hibernated' })
                .catch(withoutMemory('pass keepMemory: false to keep the files alone')),
        );
        return empty();
      },
    }),
    route({
      method: 'post',
      path: '/sandboxes/{id}/snapshots',
      name: 'e2bCreateSnapshot',
      summary: 'Keep what a sandbox is',
      tag,
      params: Params,
      body: z.looseObject({ name: z.string().max(128).nullish(), memory: z.boolean().nullish() }),
      answers: { 201: { description: 'The snapshot' } },
      async handle({ json, principal, params, body }) {
        const { id } = await findSandbox(control, principal, params.id);
        const name = body.name ? formatTemplateRef(parseTemplateRef(body.name)) : undefined;
        const memory = body.memory !== false;
        const snapshot = await control
          .snapshot(principal, id, { memory })
          .catch(withoutMemory('ask for a snapshot of the files alone'));
        // Sandboxes are created from names, so a name becomes a template.
        if (name !== undefined) await nameIt(control, principal, name, snapshot);
        return json(showSnapshot(snapshot, name === undefined ? [] : [name]), 201);
      },
    }),
    route({
      method: 'get',
      path: '/snapshots',
      name: 'e2bListSnapshots',
      summary: 'List snapshots',
      tag,
      query: z.object({
        sandboxID: z.string().max(80).optional(),
        name: z.string().max(128).optional(),
        limit: z.coerce.number().int().min(1).max(100).default(100),
        nextToken: z.string().max(256).optional(),
      }),
      answers: { 200: { description: 'A page' } },
      async handle({ json, response, principal, query }) {
        const names = await namesOf(control, principal);
        if (query.name !== undefined)
          return json(await named(control, principal, query.name, names, query.sandboxID));
        // Snapshots outlive their sandbox. An id that cannot exist has none.
        const sandbox = query.sandboxID === undefined ? undefined : parseE2bId(query.sandboxID);
        if (query.sandboxID !== undefined && !sandbox) return json([]);
        const page = await control.snapshots(principal, {
          sandbox,
          limit: query.limit,
          cursor: query.nextToken,
        });
        if (page.nextCursor !== null) response.setHeader('X-Next-Token', page.nextCursor);
        return json(page.snapshots.map((snapshot) => showSnapshot(snapshot, names.get(snapshot.id) ?? [])));
      },
    }),
    route({
      method: 'delete',
      path: '/templates/{id}',
      name: 'e2bDeleteSnapshot',
      summary: 'Remove a snapshot or a template',
      tag,
      params: z.object({ id: z.string().max(200) }),
      answers: { 204: { description: 'Done' } },
      async handle({ empty, principal, params }) {
        const names = await namesOf(control, principal);
        const snapshot = snapshotIdOf(params.id);
        if (snapshot !== undefined) {
          await control.getSnapshot(principal, snapshot);
          for (const name of names.get(snapshot) ?? []) await control.removeTemplate(principal, name);
          await control.removeSnapshot(principal, snapshot);
        } else await removeNamed(control, principal, params.id, names);
        return empty();
      },
    }),
    route({
      method: 'post',
      path: '/sandboxes/{id}/fork',
      name: 'e2bForkSandbox',
      summary: 'Make sandboxes that go on from what this one is',
      tag,
      params: Params,
      body: z.looseObject({
        count: z.int().min(1).max(MOST_FORKS).default(1),
        timeout: TimeoutSeconds.optional(),
      }),
      answers: { 201: { description: 'The forks' } },
      async handle({ json, request, principal, params, body }) {
        const wanted = { timeoutMs: timeoutMs(body.timeout ?? 300) };
        requireLimits(control.policy, wanted);
        const { id, state } = await findSandbox(control, principal, params.id);
        if (e2bState(state) === 'paused')
          throw new CayError('conflict', `Sandbox "${params.id}" is paused`, { hint: 'connect to it first' });
        const forked = await control
          .fork(principal, id, { count: body.count, memory: true })
          .catch(withoutMemory());
        const children: Sandbox[] = [];
        for (const child of forked.sandboxes) {
          children.push(await control.update(principal, child.id, wanted));
        }
        const shown = children.map(async (sandbox) => ({
          sandbox: await showAccess(sandbox, tokens, domainOf(request)),
        }));
        return json(await Promise.all(shown), 201);
      },
    }),
  ];
}

/** Adds to an `unsupported` error that the runtime cannot capture memory. */
function withoutMemory(hint = 'run sandboxes under gVisor, or use the API of Cay for files alone') {
  return (error: unknown): never => {
    if (!(error instanceof CayError) || error.code !== 'unsupported') throw error;
    throw new CayError('unsupported', `The isolation of this sandbox cannot keep memory: ${error.message}`, {
      hint,
    });
  };
}
