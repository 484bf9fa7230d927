/** E2B's API for sandboxes, in both generations of its routes. */
import type { IncomingMessage } from 'node:http';
import { CayError, type Sandbox, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { route, type Call, type Route } from '../../http/route.ts';
import { idempotencyKeyOf } from '../../http/idempotency-key.ts';
import { traceOf } from '../../http/trace.ts';
import type { AccessTokens } from '../access-tokens.ts';
import { requireE2bId } from '../sandbox-id.ts';
import { requireLimits } from '../../../policy/bound-limits.ts';
import {
  CreateBody,
  NetworkUpdateBody,
  TimeoutSeconds,
  refuseNetwork,
  timeoutMs,
  toCreateSandbox,
} from './create.ts';
import { ListQuery, listSandboxes } from './list.ts';
import { measure, measuredBefore } from './measure.ts';
import type { PreparedSandboxes } from './templates/prepared-sandboxes.ts';
import { toNetworkPolicy } from './network.ts';
import { e2bState, showAccess, showDetail, showListed } from './show.ts';

export interface E2bRouteOptions {
  control: Control;
  /** Creates and starts sandboxes. */
  sandboxes: PreparedSandboxes;
  tokens: AccessTokens;
  /** The domain below which this client reaches ports. */
  domainOf(request: IncomingMessage): string;
}

const tag = 'e2b';
const Params = z.object({ id: z.string().max(80) });
const done = { 204: { description: 'Done' } };
const given = { 200: { description: 'The sandbox' }, 201: { description: 'The sandbox' } };
const UnixSeconds = z.coerce.number().int().min(0).optional();

/** Rejects `not_found` also for a sandbox that is being removed. */
export async function findSandbox(
  control: Pick<Control, 'get'>,
  principal: Principal,
  text: string,
): Promise<Sandbox> {
  const sandbox = await control.get(principal, requireE2bId(text));
  if (sandbox.state !== 'destroying') return sandbox;
  throw new CayError('not_found', `Sandbox "${text}" does not exist`);
}

export function sandboxRoutes({ control, sandboxes, tokens, domainOf }: E2bRouteOptions): Route[] {
  const find = (principal: Principal, text: string) => findSandbox(control, principal, text);

  /** A pause at the timeout cannot be refused then, so it is refused at the creation. */
  async function requireMemory(): Promise<void> {
    const { abilities, notes } = await control.capabilities();
    if (abilities.memorySnapshots) return;
    throw new CayError(
      'unsupported',
      `A sandbox cannot be paused with its memory here${notes.memorySnapshots ? `: ${notes.memorySnapshots}` : ''}`,
      {
        hint: 'pass keepMemory: false to keep the files alone',
      },
    );
  }

  const create = (generation: 1 | 2) =>
    route({
      method: 'post',
      path: generation === 1 ? '/sandboxes' : '/v2/sandboxes',
      name: 'e2bCreateSandbox',
      summary: 'Create a sandbox',
      tag,
      body: CreateBody,
      answers: given,
      async handle({ json, request, response, principal, body }) {
        const wanted = toCreateSandbox(body, generation, control.network.carries);
        if (wanted.onTimeout === 'pause') await requireMemory();
        const memory =
          wanted.snapshot === undefined
            ? undefined
            : (await control.getSnapshot(principal, wanted.snapshot)).memory;
        const { sandbox } = await sandboxes.create(
          // Ports of E2B sandboxes are public, so even an admin gets none without isolation: those ports
          // would be ports of the host.
          { ...principal, role: 'member' },
          { ...wanted, ...(memory !== undefined && { memory }) },
          { idempotencyKey: idempotencyKeyOf(request.headers) },
        );
        traceOf(response).sandbox = sandbox.id;
        return json(await showAccess(sandbox, tokens, domainOf(request)), 201);
      },
    });

  const list = (generation: 1 | 2) =>
    route({
      method: 'get',
      path: generation === 1 ? '/sandboxes' : '/v2/sandboxes',
      name: 'e2bListSandboxes',
      summary: 'List sandboxes',
      tag,
      query: ListQuery,
      answers: { 200: { description: 'A page' } },
      async handle({ json, response, principal, query }) {
        // The first generation lists running sandboxes only.
        const wanted =
          generation === 1 ? { ...query, state: query.state ?? (['running'] as const).slice() } : query;
        const { page, nextToken, running } = await listSandboxes(control, principal, wanted);
        if (nextToken !== undefined) response.setHeader('X-Next-Token', nextToken);
        response.setHeader('X-Total-Running', String(running));
        return json(page.map(showListed));
      },
    });

  const ConnectBody = z.looseObject({ timeout: TimeoutSeconds.optional(), memory: z.boolean().nullish() });
  const connect = (path: string, timeoutS: number) =>
    route({
      method: 'post',
      path,
      name: 'e2bConnectSandbox',
      summary: 'Make sure that a sandbox runs',
      tag,
      params: Params,
      body: ConnectBody,
      answers: given,
      async handle({ json, request, principal, params, body }) {
        requireLimits(control.policy, { timeoutMs: timeoutMs(body.timeout ?? timeoutS) });
        const before = await find(principal, params.id);
        const ran = before.state === 'active' || before.state === 'creating';
        if (!ran) await wake(principal, before, body.memory !== false);
        const sandbox = await extend(principal, before.id, body.timeout ?? timeoutS, !ran);
        return json(await showAccess(sandbox, tokens, domainOf(request)), ran ? 200 : 201);
      },
    });

  /** Without its memory a paused sandbox is stopped and started from its files. */
  async function wake(principal: Principal, sandbox: Sandbox, memory: boolean): Promise<void> {
    if (sandbox.state === 'paused' && memory) await control.resume(principal, sandbox.id);
    else {
      if (sandbox.state === 'paused') await control.stop(principal, sandbox.id, { graceMs: 0 });
      await sandboxes.start(principal, sandbox.id);
    }
  }

  /** Sets the remaining lifetime, unless the sandbox lives longer already. */
  async function extend(
    principal: Principal,
    id: SandboxId,
    seconds: number,
    anew: boolean,
  ): Promise<Sandbox> {
    const sandbox = await control.get(principal, id);
    const { expiresAtMs } = sandbox;
    const enough =
      expiresAtMs === null ? sandbox.timeoutMs === null : expiresAtMs >= Date.now() + timeoutMs(seconds);
    return enough && !anew ? sandbox : control.update(principal, id, { timeoutMs: timeoutMs(seconds) });
  }

  const nothing = ({ context }: Pick<Call<unknown, unknown, unknown>, 'context'>) => context.body(null, 204);

  return [
    create(2),
    create(1),
    list(2),
    list(1),
    connect('/v2/sandboxes/{id}/connect', 300),
    connect('/sandboxes/{id}/connect', 15),
    connect('/sandboxes/{id}/resume', 15),
    route({
      method: 'get',
      path: '/sandboxes/{id}',
      name: 'e2bGetSandbox',
      summary: 'Get a sandbox',
      tag,
      params: Params,
      answers: { 200: { description: 'The sandbox' } },
      async handle({ json, request, principal, params }) {
        const sandbox = await find(principal, params.id);
        const { policy } = await control.network.get(principal, sandbox.id);
        return json(await showDetail(sandbox, policy, tokens, domainOf(request)));
      },
    }),
    route({
      method: 'delete',
      path: '/sandboxes/{id}',
      name: 'e2bKillSandbox',
      summary: 'Remove a sandbox',
      tag,
      params: Params,
      answers: done,
      async handle({ context, principal, params }) {
        await control.remove(principal, (await find(principal, params.id)).id);
        return nothing({ context });
      },
    }),
    route({
      method: 'post',
      path: '/sandboxes/{id}/timeout',
      name: 'e2bSetTimeout',
      summary: 'Set how long a sandbox lives from now',
      tag,
      params: Params,
      body: z.looseObject({ timeout: TimeoutSeconds }),
      answers: done,
      async handle({ context, principal, params, body }) {
        const wanted = { timeoutMs: timeoutMs(body.timeout) };
        requireLimits(control.policy, wanted);
        const sandbox = await find(principal, params.id);
        if (e2bState(sandbox.state) === 'paused')
          throw new CayError('not_found', `Sandbox "${params.id}" is paused`, { hint: 'connect to it' });
        await control.update(principal, sandbox.id, wanted);
        return nothing({ context });
      },
    }),
    route({
      method: 'post',
      path: '/sandboxes/{id}/refreshes',
      name: 'e2bRefreshSandbox',
      summary: 'Make a sandbox live longer',
      tag,
      params: Params,
      body: z.looseObject({ duration: TimeoutSeconds.max(3600).optional() }),
      answers: done,
      async handle({ context, principal, params, body }) {
        const { id } = await find(principal, params.id);
        await extend(principal, id, body.duration ?? 15, false);
        return nothing({ context });
      },
    }),
    route({
      method: 'put',
      path: '/sandboxes/{id}/network',
      name: 'e2bUpdateNetwork',
      summary: 'Replace what a sandbox may reach',
      tag,
      params: Params,
      body: NetworkUpdateBody,
      answers: done,
      async handle({ context, principal, params, body }) {
        const { id } = await find(principal, params.id);
        const { carries } = control.network;
        refuseNetwork(body, carries);
        if (carries) await control.network.set(principal, id, toNetworkPolicy(body));
        else if (body.allow_internet_access === true)
          throw new CayError('unsupported', 'A sandbox reaches nothing outside itself');
        return nothing({ context });
      },
    }),
    route({
      method: 'get',
      path: '/sandboxes/{id}/metrics',
      name: 'e2bGetMetrics',
      summary: 'Read what a sandbox uses',
      tag,
      params: Params,
      query: z.object({ start: UnixSeconds, end: UnixSeconds }),
      answers: { 200: { description: 'Readings' } },
      async handle({ json, principal, params, query, signal }) {
        const sandbox = await find(principal, params.id);
        const nowS = Date.now() / 1000;
        const past = await measuredBefore(control, principal, sandbox, query);
        const asked = (query.start ?? 0) <= nowS && nowS <= (query.end ?? Infinity) + 1;
        const now =
          e2bState(sandbox.state) === 'running' && asked
            ? [await measure(control, principal, sandbox.id, signal)]
            : [];
        return json([...past, ...now]);
      },
    }),
  ];
}
