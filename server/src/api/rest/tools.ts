import {
  ToolCallSchema,
  ToolDialectSchema,
  ToolEventSchema,
  ToolFormatSchema,
  ToolListSchema,
  ToolResultSchema,
  type ToolEvent,
  type ToolResult,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { Control } from '../../control/control.ts';
import type { ToolProgress } from '../../control/tools/tool.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, eventsAnswer, streamFormat } from '../http/stream-answer.ts';
import { SandboxParams } from './parameters.ts';

const tag = 'tools';
/** `write` takes 8 MiB, and JSON may need two characters for one. */
const TOOL_BODY_BYTES = 20 * 1024 * 1024;

export function toolRoutes(control: Control): Route[] {
  return [
    route({
      method: 'get',
      path: '/v1/tools',
      name: 'listTools',
      summary: 'List the agent tools of a dialect, as a model API takes them',
      tag,
      query: z
        .object({ dialect: ToolDialectSchema.optional(), format: ToolFormatSchema.optional() })
        .strict(),
      answers: { 200: { description: 'The tools, in a fixed order', schema: ToolListSchema } },
      handle({ json, query }) {
        const { dialect = 'claude', format = 'anthropic' } = query;
        return json({ dialect, format, tools: control.tools.describe({ dialect, format }) });
      },
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/tools/{name}',
      name: 'callTool',
      summary: 'Call an agent tool, and wait for its result or stream its progress',
      description:
        'A tool that cannot do what was asked answers with `isError` and says why in `content`. ' +
        'Streams events if `Accept` is `application/x-ndjson` or `text/event-stream`. ' +
        'With a `toolCallId` it runs once, however often the call is sent: a client that lost its answer sends it again. ' +
        'Without one, a client that disconnects ends the command.',
      budget: 'stream',
      tag,
      params: SandboxParams.extend({ name: z.string().min(1).max(100) }),
      body: ToolCallSchema,
      maxBodyBytes: TOOL_BODY_BYTES,
      answers: {
        200: {
          description: 'The result, or a stream of events',
          schema: ToolResultSchema,
          media: STREAMS,
          events: ToolEventSchema,
        },
      },
      async handle({ context, json, principal, params, body, signal }) {
        const format = streamFormat(context);
        const { id, name } = params;
        if (!format) return json(await control.tools.call(principal, id, name, body, { signal }));
        const events = progressEvents((onProgress) =>
          control.tools.call(principal, id, name, body, { signal, onProgress }),
        );
        return eventsAnswer(context, events, { format });
      },
    }),
  ];
}

/** Only the newest progress is kept for a reader that is slow. */
async function* progressEvents(
  call: (onProgress: (progress: ToolProgress) => void) => Promise<ToolResult>,
): AsyncGenerator<ToolEvent> {
  let newest: ToolProgress | undefined;
  let wake: (() => void) | undefined;
  let over = false;
  const result = call((progress) => {
    newest = progress;
    wake?.();
  }).finally(() => {
    over = true;
    wake?.();
  });
  result.catch(() => {});
  while (!over) {
    await new Promise<void>((resolve) => {
      wake = resolve;
      if (newest || over) resolve();
    });
    if (newest && !over) {
      yield { type: 'progress', ...newest };
      newest = undefined;
    }
  }
  yield { type: 'result', result: await result };
}
