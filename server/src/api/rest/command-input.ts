import { PtySizeSchema, SignalBodySchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import { bodyOf } from '../http/request-body.ts';
import type { Control } from '../../control/control.ts';
import { CommandParams, Flag } from './parameters.ts';
import { route, type Route } from '../http/route.ts';

const tag = 'commands';
const done = { 204: { description: 'Done' } };

/** What a command that runs is sent: input, signals, the size of its terminal. */
export function commandInputRoutes(commands: Control['commands']): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/commands/{cmd}/stdin',
      name: 'writeStdin',
      summary: "Write to a command's standard input",
      budget: 'stream',
      tag,
      params: CommandParams,
      query: z.object({ close: Flag.optional() }).strict(),
      rawBody: 'application/octet-stream',
      answers: done,
      handle: async ({ empty, request, principal, params, query: { close }, signal }) =>
        empty(await commands.input(principal, params.id, params.cmd, bodyOf(request), { close, signal })),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/commands/{cmd}/signal',
      name: 'signalCommand',
      summary: 'Send a signal to a command',
      tag,
      params: CommandParams,
      body: SignalBodySchema,
      answers: done,
      handle: async ({ empty, principal, params, body, signal }) =>
        empty(await commands.signal(principal, params.id, params.cmd, body.signal, { signal })),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/commands/{cmd}/resize',
      name: 'resizeCommand',
      summary: "Resize a command's terminal",
      tag,
      params: CommandParams,
      body: PtySizeSchema,
      answers: done,
      handle: async ({ empty, principal, params, body, signal }) =>
        empty(await commands.resize(principal, params.id, params.cmd, body, { signal })),
    }),
  ];
}
