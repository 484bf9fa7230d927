/** The routes of E2B's API that create, find and wake sandboxes, in both generations. */
import type { IncomingMessage } from 'node:http';
import { CayError, type Sandbox, type SandboxId } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../../control/control.ts';
import type { Principal } from '../../../control/tenants/principal.ts';
import { requireLimits } from '../../../policy/bound-limits.ts';
import { idempotencyKeyOf } from '../../http/idempotency-key.ts';
import { route, type Route } from '../../http/route.ts';
import { traceOf } from '../../http/trace.ts';
import type { AccessTokens } from '../access-tokens.ts';
import { requireE2bId } from '../sandbox-id.ts';
import { CreateBody, TimeoutSeconds, timeoutMs, toCreateSandbox } from './create.ts';
import { ListQuery, listSandboxes } from './list.ts';
import { showAccess, showListed } from './show.ts';
import type { PreparedSandboxes } from './templates/prepared-sandboxes.ts';

export interface E2bRouteOptions {
  control: Control;
  /** Creates and starts sandboxes. */
  sandboxes: PreparedSandboxes;
  tokens: AccessTokens;
  /** The domain below which this client reaches ports. */
  domainOf(request: IncomingMessage): string;
}

export const tag = 'e2b';
export const Params = z.object({ id: z.string().max(80) });
const given = { 200: { description: 'The sandbox' }, 201: { description: 'The sandbox' } };

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

export function startingRoutes({ control, sandboxes, tokens, domainOf }: E2bRouteOptions): Route[] {
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
        if (wanted.onTimeout === 'pause') await requireMemory(control);
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
        const before = await findSandbox(control, principal, params.id);
        const ran = before.state === 'active' || before.state === 'creating';
        if (!ran) await wake(principal, before, body.memory !== false);
        const sandbox = await extend(control, principal, before.id, body.timeout ?? timeoutS, !ran);
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

  return [
    create(2),
    create(1),
    list(2),
    list(1),
    connect('/v2/sandboxes/{id}/connect', 300),
    connect('/sandboxes/{id}/connect', 15),
    connect('/sandboxes/{id}/resume', 15),
  ];
}

/** A pause at the timeout cannot be refused then, so it is refused at the creation. */
async function requireMemory(control: Pick<Control, 'capabilities'>): Promise<void> {
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

/** Sets the remaining lifetime, unless the sandbox lives longer already. */
export async function extend(
  control: Pick<Control, 'get' | 'update'>,
  principal: Principal,
  id: SandboxId,
  seconds: number,
  always: boolean,
): Promise<Sandbox> {
  const sandbox = await control.get(principal, id);
  const { expiresAtMs } = sandbox;
  const enough =
    expiresAtMs === null ? sandbox.timeoutMs === null : expiresAtMs >= Date.now() + timeoutMs(seconds);
  return enough && !always ? sandbox : control.update(principal, id, { timeoutMs: timeoutMs(seconds) });
}
