/** E2B's API for sandboxes, in both generations of its routes. */
import { CayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Principal } from '../../../control/tenants/principal.ts';
import { route, type Route } from '../../http/route.ts';
import { requireLimits } from '../../../policy/bound-limits.ts';
import { NetworkUpdateBody, TimeoutSeconds, refuseNetwork, timeoutMs } from './create.ts';
import { measure, measuredBefore } from './measure.ts';
import { toNetworkPolicy } from './network.ts';
import { extend, findSandbox, Params, startingRoutes, tag, type E2bRouteOptions } from './starting-routes.ts';
import { e2bState, showDetail } from './show.ts';

const done = { 204: { description: 'Done' } };
const UnixSeconds = z.coerce.number().int().min(0).optional();

export function sandboxRoutes(options: E2bRouteOptions): Route[] {
  const { control, tokens, domainOf } = options;
  const find = (principal: Principal, text: string) => findSandbox(control, principal, text);

  return [
    ...startingRoutes(options),
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
      async handle({ empty, principal, params }) {
        await control.remove(principal, (await find(principal, params.id)).id);
        return empty();
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
      async handle({ empty, principal, params, body }) {
        const wanted = { timeoutMs: timeoutMs(body.timeout) };
        requireLimits(control.policy, wanted);
        const sandbox = await find(principal, params.id);
        if (e2bState(sandbox.state) === 'paused')
          throw new CayError('not_found', `Sandbox "${params.id}" is paused`, { hint: 'connect to it' });
        await control.update(principal, sandbox.id, wanted);
        return empty();
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
      async handle({ empty, principal, params, body }) {
        const { id } = await find(principal, params.id);
        await extend(control, principal, id, body.duration ?? 15, false);
        return empty();
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
      async handle({ empty, principal, params, body }) {
        const { id } = await find(principal, params.id);
        const { carries } = control.network;
        refuseNetwork(body, carries);
        if (carries) await control.network.set(principal, id, toNetworkPolicy(body));
        else if (body.allow_internet_access === true)
          throw new CayError('unsupported', 'A sandbox reaches nothing outside itself');
        return empty();
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
