import {
  CayError,
  ExposePortSchema,
  ExposedPortSchema,
  PortEventSchema,
  PortListSchema,
  PublishPortSchema,
  PublishedPortSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { z } from 'zod';
import { HostPortParams, PortParams, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';

const tag = 'ports';

export function portRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/ports',
      name: 'listPorts',
      summary: 'List the ports that listen inside, those that are exposed, and those that are published',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'Ports', schema: PortListSchema } },
      async handle({ json, principal, params, signal }) {
        const { state, ports: exposed } = await control.get(principal, params.id);
        const published = await control.hostPorts.published(principal, params.id);
        if (state !== 'active') return json({ listening: [], exposed, published });
        const { guest } = await control.enter(principal, params.id);
        return json({ listening: await guest.ports.list({ signal }), exposed, published });
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
      handle: async ({ empty, principal, params }) =>
        empty(await control.unexpose(principal, params.id, params.port)),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/published',
      name: 'publishPort',
      summary: "Make a port of the server's machine lead to a port of a sandbox",
      description:
        'Every client that reaches that port of the machine reaches the port inside, without a key. It stays published while the sandbox exists. A connection, or a datagram of a port for UDP, wakes a paused sandbox.',
      tag,
      params: SandboxParams,
      body: PublishPortSchema,
      answers: { 201: { description: 'The published port', schema: PublishedPortSchema } },
      async handle({ json, principal, params, body }) {
        return json(await control.hostPorts.publish(principal, params.id, body), 201);
      },
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}/published/{hostPort}',
      name: 'unpublishPort',
      summary: "Stop leading a port of the server's machine to a sandbox",
      tag,
      params: HostPortParams,
      query: z.object({ protocol: z.enum(['tcp', 'udp']).default('tcp') }).strict(),
      answers: { 204: { description: 'Done' } },
      handle: async ({ empty, principal, params, query }) =>
        empty(await control.hostPorts.unpublish(principal, params.id, params.hostPort, query.protocol)),
    }),
  ];
}
