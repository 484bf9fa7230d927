import { CommandIdSchema, SandboxStatusSchema, WaitedSchema } from '@cay/sdk/protocol';
import { z } from 'zod';
import type { CommandLogs } from '../../control/commands/command-logs.ts';
import type { Control } from '../../control/open-control.ts';
import type { SandboxRecords } from '../../records/sandboxes.ts';
import { Count, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { sandboxStatus } from '../../control/commands/sandbox-status.ts';
import { traceOf } from '../http/trace.ts';
import { waitForEnd } from '../../control/commands/wait-for-end.ts';

/** Longer than this proxies do not wait for an answer, some of them. */
const LONGEST_WAIT_MS = 60_000;
const DEFAULT_WAIT_MS = 30_000;

export function statusRoutes(
  control: Control,
  sandboxes: Pick<SandboxRecords, 'get'>,
  logs: CommandLogs,
): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/status',
      name: 'getStatus',
      summary: 'Tell how a sandbox and its commands stand',
      description:
        'Answers in every state of the sandbox, wakes nothing and does not count as use. `complete` is true when the command has ended that the sandbox was created with, ' +
        'or when the sandbox has failed or is being removed.',
      tag: 'sandboxes',
      params: SandboxParams,
      answers: { 200: { description: 'How it stands', schema: SandboxStatusSchema } },
      async handle({ json, principal, params }) {
        const { id } = control.get(principal, params.id);
        return json(await sandboxStatus(sandboxes.get(id)!, logs, control.backend));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/wait',
      name: 'waitForCommand',
      summary: 'Wait for the end of a command',
      description:
        'Answers when the command has ended (`completed`, with its `end`), when nobody can know any more how it ended (`lost`: the sandbox was stopped, failed or was removed), ' +
        `or after \`timeoutMs\` (\`timed_out\`), which is ${DEFAULT_WAIT_MS} unless told otherwise and never more than ${LONGEST_WAIT_MS}: whoever wants to wait longer asks again. ` +
        'Without `command` it is the one that the sandbox was created with. Who waits counts as attached, so the sandbox is not idle; one that is paused is not woken.',
      budget: 'stream',
      tag: 'commands',
      params: SandboxParams,
      query: z
        .object({ command: CommandIdSchema.optional(), timeoutMs: Count(Number.MAX_SAFE_INTEGER).optional() })
        .strict(),
      answers: { 200: { description: 'What it came to', schema: WaitedSchema } },
      async handle({ json, response, principal, params, query, signal }) {
        // A server that closes does not wait along; who waits asks the next one.
        traceOf(response).endless = true;
        const timeoutMs = Math.min(query.timeoutMs ?? DEFAULT_WAIT_MS, LONGEST_WAIT_MS);
        return json(
          await waitForEnd({ control, sandboxes, logs }, principal, params.id, {
            command: query.command,
            timeoutMs,
            signal,
          }),
        );
      },
    }),
  ];
}
