import {
  CayError,
  CodeContextListSchema,
  CodeContextSchema,
  InterruptedSchema,
  isCayError,
  type CodeEvent,
} from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { CallOptions, Guest } from '../../guest/guest.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import type { EnteredSandbox } from '../sandboxes/sandbox.ts';
import type { Principal } from '../tenants/principal.ts';
import { codeEvents } from './code-events.ts';
import type { InterpreterVerbs } from './interpreter.ts';
import { interpreterTemplate, type TemplateOptions } from './interpreter-template.ts';
import { askKernel, streamKernel, type KernelRequest } from './kernel-client.ts';
import { kernelAnswers, startKernel } from './start-kernel.ts';

const INTERRUPT_MS = 10_000;

export function openInterpreter(options: TemplateOptions): InterpreterVerbs {
  const { control } = options;
  const starting = new Map<string, Promise<void>>();

  /** Callers that find no kernel at the same time wait for one start. */
  async function started(guest: Guest, row: EnteredSandbox, call: CallOptions): Promise<void> {
    const key = `${row.id}:${row.incarnation}`;
    let start = starting.get(key);
    if (!start) {
      start = startKernel(guest, row).finally(() => starting.delete(key));
      starting.set(key, start);
    }
    await start;
    call.signal?.throwIfAborted();
  }

  /** Asks the kernel, and starts it if nothing listens on its port. Nothing was asked then. */
  async function withKernel<T>(
    principal: Principal,
    ref: string,
    call: CallOptions,
    ask: (guest: Guest, owner: string) => Promise<T>,
  ): Promise<T> {
    const { guest, row } = await control.enter(principal, ref);
    try {
      return await ask(guest, principal.project);
    } catch (error) {
      if (!isCayError(error, 'unavailable') || (await kernelAnswers(guest, call))) throw error;
    }
    await started(guest, row, call);
    return ask(guest, principal.project);
  }

  async function asked<S extends z.ZodType>(
    schema: S,
    guest: Guest,
    request: KernelRequest,
  ): Promise<z.infer<S>> {
    const parsed = schema.safeParse(await askKernel(guest, request));
    if (parsed.success) return parsed.data;
    throw new CayError('failed_precondition', 'The code interpreter gave no valid answer');
  }

  const ofContext = (context: string, verb = '') =>
    `/contexts/${encodeURIComponent(context)}${verb && `/${verb}`}`;

  return {
    ...interpreterTemplate(options),

    async ensure(guest, row, call = {}) {
      if (!(await kernelAnswers(guest, call))) await started(guest, row, call);
    },

    run: (principal, ref, { code, language, context, env, timeoutMs }, call = {}) =>
      withKernel(principal, ref, call, async (guest, owner) => {
        const body = { code, language, context_id: context, env_vars: env ?? {} };
        const source = await streamKernel(guest, { ...call, owner, method: 'POST', path: '/execute', body });
        return bounded(guest, source, { owner, timeoutMs });
      }),

    contexts: (principal, ref, call = {}) =>
      withKernel(principal, ref, call, async (guest, owner) => {
        const contexts = await askKernel(guest, { ...call, owner, method: 'GET', path: '/contexts' });
        const parsed = CodeContextListSchema.safeParse({ contexts });
        if (parsed.success) return parsed.data.contexts;
        throw new CayError('failed_precondition', 'The code interpreter gave no valid answer');
      }),

    createContext: (principal, ref, request, call = {}) =>
      withKernel(principal, ref, call, (guest, owner) =>
        asked(CodeContextSchema, guest, { ...call, owner, method: 'POST', path: '/contexts', body: request }),
      ),

    async restartContext(principal, ref, context, call = {}) {
      await withKernel(principal, ref, call, (guest, owner) =>
        askKernel(guest, { ...call, owner, method: 'POST', path: ofContext(context, 'restart') }),
      );
    },

    interruptContext: (principal, ref, context, call = {}) =>
      withKernel(principal, ref, call, async (guest, owner) => {
        const path = ofContext(context, 'interrupt');
        return (await asked(InterruptedSchema, guest, { ...call, owner, method: 'POST', path })).interrupted;
      }),

    async removeContext(principal, ref, context, call = {}) {
      await withKernel(principal, ref, call, (guest, owner) =>
        askKernel(guest, { ...call, owner, method: 'DELETE', path: ofContext(context) }),
      );
    },
  };

  /** Interrupts the run when its time is up. Its events go on to the end that it has then. */
  async function* bounded(
    guest: Guest,
    source: AsyncIterable<unknown>,
    { owner, timeoutMs }: { owner: string; timeoutMs: number | undefined },
  ): AsyncGenerator<CodeEvent> {
    let timer: NodeJS.Timeout | undefined;
    let late = false;
    const onStarted = (context: string) => {
      // A program in the kernel's place may say that as often as it likes.
      if (timeoutMs === undefined || timer !== undefined) return;
      timer = setTimeout(() => {
        late = true;
        const interrupt = askKernel(guest, {
          owner,
          method: 'POST',
          path: ofContext(context, 'interrupt'),
          // Nobody waits for the answer.
          signal: AbortSignal.timeout(INTERRUPT_MS),
        });
        inBackground(interrupt, ignoreFailure);
      }, timeoutMs);
    };
    try {
      yield* codeEvents(source, { onStarted, timedOut: () => late });
    } finally {
      clearTimeout(timer);
    }
  }
}
