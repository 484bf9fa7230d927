import {
  ExecBodySchema,
  ExecEventSchema,
  ExecResultSchema,
  shellExitCode,
  type EgressDenial,
  type ExecBody,
  type ExecEvent,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { collectOutput } from '../../guest/collect.ts';
import { JsonText } from '../../lib/json-pieces.ts';
import type { Share } from '../http/budgets.ts';
import { outputEvents } from './output-events.ts';
import { SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { sendLargeJson } from '../http/send-large-json.ts';
import type { StartedCommand } from '../../control/commands/command.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';
import { traceOf } from '../http/trace.ts';

const DEFAULT_OUTPUT_BYTES = 1024 * 1024;
/** `input` may have 8 MiB, and JSON may need two characters for one. */
export const EXEC_BODY_BYTES = 20 * 1024 * 1024;

export function execRoutes(control: Control): Route[] {
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/exec',
      name: 'exec',
      summary: 'Run a command, and wait for its result or stream its output',
      description:
        'Waits for the end and answers with the result, or streams events if `Accept` is `application/x-ndjson` or `text/event-stream`. ' +
        'A client that disconnects detaches: the command runs to its end or its `timeoutMs`. ' +
        'With an `Idempotency-Key` or an `id` the command is started once, however often the call is repeated.',
      budget: 'stream',
      tag: 'commands',
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      params: SandboxParams,
      body: ExecBodySchema,
      maxBodyBytes: EXEC_BODY_BYTES,
      answers: {
        200: {
          description: 'The result, or a stream of events',
          schema: ExecResultSchema,
          media: STREAMS,
          events: ExecEventSchema,
        },
      },
      async handle(call) {
        const { context, response, request, principal, params, body, signal } = call;
        const format = streamFormat(context);
        const startedAt = performance.now();
        const since = Date.now();
        const started = await control.commands.start(principal, params.id, body, {
          idempotencyKey: idempotencyKeyOf(request.headers),
          signal,
        });
        const denied = () => control.network.deniedSince(started.sandbox, since);
        if (format) return eventsAnswer(context, streamed(started, body, denied), { format });
        const result = await waited(started, body, startedAt, traceOf(response).share);
        Object.assign(result, denied());
        return sendLargeJson(response, result, principal.project);
      },
    }),
  ];
}

async function* streamed(
  { handle }: StartedCommand,
  body: ExecBody,
  denied: () => { denied?: EgressDenial[] },
): AsyncGenerator<ExecEvent> {
  await using _ = handle;
  for await (const event of outputEvents(handle, body.encoding ?? 'utf8'))
    yield event.type === 'end' ? { ...event, ...denied() } : event;
}

async function waited(
  { handle }: StartedCommand,
  body: ExecBody,
  startedAt: number,
  share: Share | undefined,
) {
  await using _ = handle;
  const encoding = body.encoding ?? 'utf8';
  const { stdout, stderr, end, truncated } = await collectOutput(handle, {
    maxBytes: body.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES,
    ...(share && { mayHold: share.hold }),
  });
  return {
    id: handle.id,
    end,
    exitCode: shellExitCode(end),
    stdout: new JsonText(stdout, encoding),
    stderr: new JsonText(stderr, encoding),
    truncated,
    durationMs: performance.now() - startedAt,
  };
}
