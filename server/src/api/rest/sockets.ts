import { CayError, SocketMessageSchema, SocketOpenSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import type { Principal } from '../../control/tenants/principal.ts';
import { PortParams, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';

const KEY = 'Browsers offer the subprotocols `cay` and `cay.key.<key>` in place of a header.';

/** Describes the WebSockets in the OpenAPI document, and refuses plain requests to them. */
export function socketRoutes(control: Control): Route[] {
  async function refuse(principal: Principal, ref: string): Promise<never> {
    await control.get(principal, ref);
    throw new CayError('failed_precondition', 'This is a WebSocket', {
      hint: 'connect with a WebSocket client',
    });
  }

  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/exec',
      name: 'execSocket',
      summary: 'Run a command, or attach to one, over a WebSocket',
      description:
        'The first text message is `{"exec": …}` or `{"attach": {"id", "offset"}}`. Then binary messages of the client are standard input and its text messages `{"resize": {"cols", "rows"}}`, ' +
        '`{"signal": "SIGINT"}` or `{"closeStdin": true}`. Binary messages of the server are one byte for the channel (1 stdout, 2 stderr, 3 pty) and output; its text messages are events without ' +
        `data. Closing detaches. A failure closes with 4000 and the HTTP status. ${KEY}`,
      tag: 'commands',
      params: SandboxParams,
      answers: {
        101: {
          description: 'A WebSocket',
          media: ['application/json'],
          events: z.union([SocketOpenSchema, SocketMessageSchema]),
        },
      },
      handle: ({ principal, params }) => refuse(principal, params.id),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/ports/{port}/tcp',
      name: 'tcpSocket',
      summary: 'Carry bytes to a port and back over a WebSocket',
      description: `Binary messages both ways, however they are cut. The text message \`{"end":true}\` ends the client's side alone. ${KEY}`,
      tag: 'ports',
      params: PortParams,
      answers: { 101: { description: 'A WebSocket' } },
      handle: ({ principal, params }) => refuse(principal, params.id),
    }),
  ];
}
