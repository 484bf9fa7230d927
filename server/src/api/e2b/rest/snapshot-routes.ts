/**
 * E2B's API for pauses, snapshots and forks. They include memory by default, and are refused where the
 * runtime cannot capture it.
 */
import { CayError, isCayError, isId, type Sandbox, type Snapshot } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { route, type Route } from '../../http/route.ts';
import { parseE2bId } from '../sandbox-id.ts';
import { requireLimits } from '../../../policy/bound-limits.ts';
import { TimeoutSeconds, timeoutMs } from './create.ts';
import { findSandbox, type E2bRouteOptions } from './sandbox-routes.ts';
import { e2bState, showAccess } from './show.ts';

const tag = 'e2b';
const Params = z.object({ id: z.string().max(80) });
const MOST_FORKS = 100;
const STAYS = ['not_found', 'failed_precondition', 'conflict'] as const;

export function snapshotRoutes({ control, tokens, domainOf }: E2bRouteOptions): Route[] {
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
      async handle({ context, principal, params, body }) {
        const sandbox = await findSandbox(control, principal, params.id);
        if (e2bState(sandbox.state) === 'paused')
          throw new CayError('conflict', `Sandbox "${params.id}" is paused already`);
        if (body.memory === false) await control.stop(principal, sandbox.id);
        else
          await control
            .pause(principal, sandbox.id, { as: 'hibernated' })
            .catch(withoutMemory('pass keepMemory: false to keep the files alone'));
        return context.body(null, 204);
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
        const memory = body.memory !== false;
        const snapshot = await control
          .snapshot(principal, id, { memory })
          .catch(withoutMemory('ask for a snapshot of the files alone'));
        // Sandboxes are created from names, so a name becomes a template.
        if (body.name) await nameIt(control, principal, body.name, snapshot);
        return json(showSnapshot(snapshot, body.name ? [body.name] : []), 201);
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
      async handle({ context, principal, params }) {
        const names = await namesOf(control, principal);
        if (isId('snap', params.id)) {
          await control.getSnapshot(principal, params.id);
          for (const name of names.get(params.id) ?? []) await control.removeTemplate(principal, name);
          await control.removeSnapshot(principal, params.id);
        } else await removeNamed(control, principal, params.id, names);
        return context.body(null, 204);
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
        const { id } = await findSandbox(control, principal, params.id);
        const wanted = { timeoutMs: timeoutMs(body.timeout ?? 300) };
        requireLimits(control.policy, wanted);
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

function showSnapshot({ id }: Pick<Snapshot, 'id'>, names: string[]) {
  return { snapshotID: id, names };
}

async function nameIt(control: Control, principal: Principal, name: string, { id }: Snapshot): Promise<void> {
  try {
    await control.saveTemplate(principal, name, { snapshot: id, replace: true });
  } catch (error) {
    await control.removeSnapshot(principal, id);
    throw error;
  }
}

/** Template names by snapshot. */
async function namesOf(control: Control, principal: Principal): Promise<Map<string, string[]>> {
  const names = new Map<string, string[]>();
  for (const { name, snapshot } of await control.templates(principal)) {
    if (snapshot !== null) names.set(snapshot, [...(names.get(snapshot) ?? []), name]);
  }
  return names;
}

/**
 * Removes a name with all its tags, and the snapshots that no other name has. Snapshots that sandboxes are
 * based on stay.
 */
async function removeNamed(
  control: Control,
  principal: Principal,
  given: string,
  names: Map<string, string[]>,
): Promise<void> {
  const meant = (name: string) => name === given || name.startsWith(`${given}:`);
  const found = [...names].filter(([, own]) => own.some(meant));
  if (found.length === 0) throw new CayError('not_found', `Template "${given.slice(0, 80)}" does not exist`);
  for (const [snapshot, own] of found) {
    for (const name of own.filter(meant)) await control.removeTemplate(principal, name);
    if (!own.every(meant)) continue;
    await control.removeSnapshot(principal, snapshot).catch((error: unknown) => {
      if (!STAYS.some((code) => isCayError(error, code))) throw error;
    });
  }
}

async function named(
  control: Control,
  principal: Principal,
  name: string,
  names: Map<string, string[]>,
  sandbox: string | undefined,
) {
  const found = await Promise.all(
    [...names].filter(([, own]) => own.includes(name)).map(([id]) => control.getSnapshot(principal, id)),
  );
  const wanted =
    sandbox === undefined ? found : found.filter((snapshot) => snapshot.sandbox === parseE2bId(sandbox));
  return wanted.map((snapshot) => showSnapshot(snapshot, names.get(snapshot.id) ?? []));
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
