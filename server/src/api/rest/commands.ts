import {
  CommandInfoSchema,
  CommandListSchema,
  ExecBodySchema,
  ExecEventSchema,
  LaunchedSchema,
  type ExecEvent,
  type OutputEncoding,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import type { CommandHandle } from '../../guest/guest.ts';
import { outputEvents, type OutputOptions } from './output-events.ts';
import { CommandParams, Count, EncodingQuery, Flag, Moment, SandboxParams } from './parameters.ts';
import { route, type Route } from '../http/route.ts';
import { idempotencyKeyOf } from '../http/idempotency-key.ts';
import { STREAMS, eventsAnswer } from '../http/stream-answer.ts';
import { EXEC_BODY_BYTES } from './exec.ts';
import { commandInputRoutes } from './command-input.ts';

const tag = 'commands';
const Bytes = Count(Number.MAX_SAFE_INTEGER);
const done = { 204: { description: 'Done' } };

export function commandRoutes(control: Control): Route[] {
  const { commands } = control;
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/commands',
      name: 'launchCommand',
      summary: 'Launch a command and leave it running',
      description:
        'With `expose` its port becomes reachable, for those who have the token. Its output is recorded and outlives the sandbox’s stop, the newest 16 MiB of it; ' +
        'so is its end.',
      tag,
      headers: { 'Idempotency-Key': 'Makes the call repeatable' },
      params: SandboxParams,
      body: ExecBodySchema,
      maxBodyBytes: EXEC_BODY_BYTES,
      answers: {
        200: { description: 'It was running already', schema: LaunchedSchema },
        201: { description: 'It was started', schema: LaunchedSchema },
      },
      async handle({ json, request, principal, params, body }) {
        const launched = { ...body, overflow: body.overflow ?? ('drop' as const) };
        const { handle, fed } = await commands.start(principal, params.id, launched, {
          idempotencyKey: idempotencyKeyOf(request.headers),
          durable: true,
        });
        const { existing, id } = handle;
        // This handle writes the input. A command that never reads it must not delay the answer.
        const letGo = () => handle[Symbol.asyncDispose]();
        if (body.input === undefined) await letGo();
        else fed.then(letGo).catch(() => {});
        const port =
          body.expose === undefined
            ? undefined
            : (await control.get(principal, params.id)).ports.find(
                (candidate) => candidate.port === body.expose,
              );
        return json(
          { command: await commands.get(principal, params.id, id), existing, ...(port && { port }) },
          existing ? 200 : 201,
        );
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/commands',
      name: 'listCommands',
      summary: 'List running commands and the ended ones that are still remembered',
      description: 'Of a sandbox that does not run: those that were recorded.',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'Commands, oldest first', schema: CommandListSchema } },
      async handle({ json, principal, params, signal }) {
        return json({ commands: await commands.list(principal, params.id, { signal }) });
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/commands/{cmd}',
      name: 'getCommand',
      summary: 'Get a command',
      tag,
      params: CommandParams,
      answers: { 200: { description: 'The command', schema: CommandInfoSchema } },
      async handle({ json, principal, params }) {
        return json(await commands.get(principal, params.id, params.cmd));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/commands/{cmd}/output',
      name: 'readOutput',
      summary: "Stream a command's output from an offset on",
      description:
        'Follows to the end of the command; with `follow=0` it stops where the output stands now. A recorded command can be read also when its sandbox does not run. ' +
        'It begins at `offset`, with what was recorded at the time `since` or later (by the clock of the server, which may take output later than it was written), or with the last ' +
        '`tailBytes`, whichever comes last; after `limitBytes` it stops, without the event `end`. Only recorded output has a time.',
      budget: 'stream',
      tag,
      params: CommandParams,
      query: EncodingQuery.extend({
        offset: Bytes.optional(),
        since: Moment.optional(),
        tailBytes: Bytes.optional(),
        limitBytes: Bytes.optional(),
        follow: Flag.optional(),
      }),
      answers: { 200: { description: 'A stream of events', media: STREAMS, events: ExecEventSchema } },
      async handle({ context, principal, params, query, signal }) {
        const { id, cmd } = params;
        const { offset = 0, since, tailBytes, limitBytes, encoding = 'utf8' } = query;
        const now =
          query.follow === false || tailBytes !== undefined
            ? await commands.get(principal, id, cmd)
            : undefined;
        const upTo = query.follow === false && now?.end === undefined ? now?.outputBytes : undefined;
        const written = since === undefined ? 0 : await commands.offsetSince(principal, id, cmd, since);
        const from = Math.max(
          offset,
          written,
          now && tailBytes !== undefined ? now.outputBytes - tailBytes : 0,
        );
        const handle = await commands.read(principal, id, cmd, { offset: from, signal });
        return eventsAnswer(context, output(handle, encoding, { from, upTo, limitBytes }));
      },
    }),
    ...commandInputRoutes(commands),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}/commands/{cmd}',
      name: 'forgetCommand',
      summary: 'Forget an ended command and its output',
      tag,
      params: CommandParams,
      answers: done,
      handle: async ({ empty, principal, params, signal }) =>
        empty(await commands.forget(principal, params.id, params.cmd, { signal })),
    }),
  ];
}

async function* output(
  handle: CommandHandle,
  encoding: OutputEncoding,
  options: OutputOptions,
): AsyncGenerator<ExecEvent> {
  await using _ = handle;
  yield* outputEvents(handle, encoding, options);
}
