import {
  CayError,
  ExposePortSchema,
  ExposedPortSchema,
  PortEventSchema,
  PortListSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { PortParams, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';

const tag = 'ports';

export function portRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/ports',
      name: 'listPorts',
      summary: 'List the ports that listen inside and those that are exposed',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'Ports', schema: PortListSchema } },
      async handle({ json, principal, params, signal }) {
        const { state, ports: exposed } = await control.get(principal, params.id);
        if (state !== 'active') return json({ listening: [], exposed });
        const { guest } = await control.enter(principal, params.id);
        return json({ listening: await guest.ports.list({ signal }), exposed });
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/ports/watch',
      name: 'watchPorts',
      summary: 'Stream which ports open and close inside',
      tag,
      params: SandboxParams,
      answers: {
        200: {
          description: 'Those that listen now as `opened`, then every change',
          media: STREAMS,
          events: PortEventSchema,
        },
      },
      async handle({ context, principal, params, signal }) {
        const { guest } = await control.enter(principal, params.id);
        return eventsAnswer(context, guest.ports.watch({ signal }));
      },
    }),
    route({
      method: 'put',
      path: '/v1/sandboxes/{id}/ports/{port}',
      name: 'exposePort',
      summary: 'Make a port reachable through the server',
      description:
        'A `private` port needs its token; a `public` one is open to everybody who knows its address.',
      tag,
      params: PortParams,
      body: ExposePortSchema,
      answers: { 200: { description: 'The port, with its address and token', schema: ExposedPortSchema } },
      async handle({ json, principal, params, body }) {
        const sandbox = await control.expose(principal, params.id, {
          port: params.port,
          visibility: body.visibility,
        });
        const exposed = sandbox.ports.find((candidate) => candidate.port === params.port);
        if (!exposed) throw new CayError('conflict', `Port ${params.port} was hidden again at the same time`);
        return json(exposed);
      },
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}/ports/{port}',
      name: 'hidePort',
      summary: 'Make a port unreachable again',
      tag,
      params: PortParams,
      answers: { 204: { description: 'Done' } },
      async handle({ context, principal, params }) {
        await control.unexpose(principal, params.id, params.port);
        return context.body(null, 204);
      },
    }),
  ];
}
