import {
  CodeContextIdSchema,
  CodeContextListSchema,
  CodeContextSchema,
  CodeEventSchema,
  CreateCodeContextSchema,
  InterruptedSchema,
  RunCodeSchema,
} from '@cay/sdk/protocol';
import type { Control } from '../../control/control.ts';
import { route, type Route } from '../http/route.ts';
import { STREAMS, begun, eventsAnswer } from '../http/stream-answer.ts';
import { SandboxParams } from './parameters.ts';

const tag = 'interpreter';
const ContextParams = SandboxParams.extend({ context: CodeContextIdSchema });
const done = { 204: { description: 'Done' } };
/** Code may have 16 MiB, and JSON may need two characters for one. */
const BODY_BYTES = 34 * 1024 * 1024;

export function interpreterRoutes(control: Control): Route[] {
  const { interpreter } = control;
  return [
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/interpreter/run',
      name: 'runCode',
      summary: 'Run code in a context that keeps its variables',
      description:
        'Streams what comes of it: output, results in every form that they have, errors, and the end. ' +
        'The interpreter is started at its first use; it needs Python 3 in the template. ' +
        'A client that disconnects interrupts its run, and the context keeps what it had.',
      budget: 'stream',
      tag,
      params: SandboxParams,
      body: RunCodeSchema,
      maxBodyBytes: BODY_BYTES,
      answers: { 200: { description: 'A stream of events', media: STREAMS, events: CodeEventSchema } },
      async handle({ context, principal, params, body, signal }) {
        const events = await interpreter.run(principal, params.id, body, { signal });
        return eventsAnswer(context, await begun(events));
      },
    }),
    route({
      method: 'get',
      path: '/v1/sandboxes/{id}/interpreter/contexts',
      name: 'listCodeContexts',
      summary: 'List contexts',
      tag,
      params: SandboxParams,
      answers: { 200: { description: 'Contexts, the default ones first', schema: CodeContextListSchema } },
      async handle({ json, principal, params, signal }) {
        return json({ contexts: await interpreter.contexts(principal, params.id, { signal }) });
      },
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/interpreter/contexts',
      name: 'createCodeContext',
      summary: 'Make a context',
      tag,
      params: SandboxParams,
      body: CreateCodeContextSchema,
      answers: { 201: { description: 'The context', schema: CodeContextSchema } },
      async handle({ json, principal, params, body, signal }) {
        return json(await interpreter.createContext(principal, params.id, body, { signal }), 201);
      },
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/interpreter/contexts/{context}/restart',
      name: 'restartCodeContext',
      summary: 'Restart a context, without what it had',
      tag,
      params: ContextParams,
      answers: done,
      handle: async ({ empty, principal, params, signal }) =>
        empty(await interpreter.restartContext(principal, params.id, params.context, { signal })),
    }),
    route({
      method: 'post',
      path: '/v1/sandboxes/{id}/interpreter/contexts/{context}/interrupt',
      name: 'interruptCodeContext',
      summary: 'Interrupt what runs in a context',
      description: 'Code that does not stop within 3 seconds loses its context, which is restarted.',
      tag,
      params: ContextParams,
      answers: { 200: { description: 'Whether something was running', schema: InterruptedSchema } },
      async handle({ json, principal, params, signal }) {
        const interrupted = await interpreter.interruptContext(principal, params.id, params.context, {
          signal,
        });
        return json({ interrupted });
      },
    }),
    route({
      method: 'delete',
      path: '/v1/sandboxes/{id}/interpreter/contexts/{context}',
      name: 'removeCodeContext',
      summary: 'Remove a context with what it has',
      tag,
      params: ContextParams,
      answers: done,
      handle: async ({ empty, principal, params, signal }) =>
        empty(await interpreter.removeContext(principal, params.id, params.context, { signal })),
    }),
  ];
}
