import { CommandIdSchema, SandboxStatusSchema, WaitedSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import { Count, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { traceOf } from '../http/trace.ts';

/** Some proxies do not wait longer than this for an answer. */
const LONGEST_WAIT_MS = 60_000;
const DEFAULT_WAIT_MS = 30_000;

export function statusRoutes({ commands }: Pick<Control, 'commands'>): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/status',
      name: 'getStatus',
      summary: 'Get the status of a sandbox and its commands',
      description:
        'Answers in every state of the sandbox, wakes nothing and does not count as use. `complete` is true when the command has ended that the sandbox was created with, ' +
        'or when the sandbox has failed or is being removed.',
      tag: 'sandboxes',
      params: SandboxParams,
      answers: { 200: { description: 'The status', schema: SandboxStatusSchema } },
      handle: async ({ json, principal, params }) => json(await commands.status(principal, params.id)),
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/wait',
      name: 'waitForCommand',
      summary: 'Wait for the end of a command',
      description:
        'Answers when the command has ended (`completed`, with its `end`), when its end cannot be known (`lost`: the sandbox was stopped, failed or was removed), ' +
        `or after \`timeoutMs\` (\`timed_out\`), which is ${DEFAULT_WAIT_MS} by default and at most ${LONGEST_WAIT_MS}: to wait longer, ask again. ` +
        'Without `command` it is the one that the sandbox was created with. While a caller waits the sandbox is not idle. A paused sandbox is not woken.',
      budget: 'stream',
      tag: 'commands',
      params: SandboxParams,
      query: z
        .object({ command: CommandIdSchema.optional(), timeoutMs: Count(Number.MAX_SAFE_INTEGER).optional() })
        .strict(),
      answers: { 200: { description: 'The outcome', schema: WaitedSchema } },
      async handle({ json, response, principal, params, query, signal }) {
        // A server that closes ends the request. The client asks again.
        traceOf(response).endless = true;
        const timeoutMs = Math.min(query.timeoutMs ?? DEFAULT_WAIT_MS, LONGEST_WAIT_MS);
        const { command } = query;
        return json(await commands.wait(principal, params.id, { command, timeoutMs, signal }));
      },
    }),
  ];
}
