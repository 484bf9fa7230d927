/** Events of the kernel in the terms of our protocol. */
import { CayError, CodeContextIdSchema, CodeFormsSchema, type CodeEvent } from '@cay/sdk/protocol';
import { z } from 'zod';

const KernelEvent = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('number_of_executions'),
    execution_count: z.int(),
    context: CodeContextIdSchema.optional(),
  }),
  z.object({ type: z.literal('stdout'), text: z.string() }),
  z.object({ type: z.literal('stderr'), text: z.string() }),
  CodeFormsSchema.extend({ type: z.literal('result'), is_main_result: z.boolean() }),
  z.object({
    type: z.literal('error'),
    name: z.string(),
    value: z.string(),
    traceback: z.string(),
    interrupted: z.boolean().default(false),
  }),
  z.object({ type: z.literal('end_of_execution') }),
  z.object({ type: z.literal('unexpected_end_of_execution') }),
]);

export interface CodeEventOptions {
  /** Called with the context when the run begins. */
  onStarted?(context: string): void;
  /** Whether the time of the run is up. */
  timedOut?(): boolean;
}

export async function* codeEvents(
  source: AsyncIterable<unknown>,
  { onStarted, timedOut = () => false }: CodeEventOptions = {},
): AsyncGenerator<CodeEvent> {
  let outcome: Extract<CodeEvent, { type: 'end' }>['outcome'] = 'completed';
  for await (const value of source) {
    const parsed = KernelEvent.safeParse(value);
    if (!parsed.success) throw malformed();
    const event = parsed.data;
    switch (event.type) {
      case 'number_of_executions':
        if (event.context !== undefined) onStarted?.(event.context);
        yield { type: 'started', count: event.execution_count };
        break;
      case 'stdout':
      case 'stderr':
        yield event;
        break;
      case 'result': {
        const { type, is_main_result: main, ...forms } = event;
        yield { type, main, ...forms };
        break;
      }
      case 'error': {
        const { interrupted, ...error } = event;
        outcome = interrupted ? 'interrupted' : 'failed';
        yield error;
        break;
      }
      case 'unexpected_end_of_execution':
        yield { type: 'end', outcome: timedOut() ? 'timed_out' : 'died' };
        return;
      case 'end_of_execution':
        yield { type: 'end', outcome: timedOut() && outcome !== 'completed' ? 'timed_out' : outcome };
        return;
    }
  }
  throw malformed();
}

const malformed = () => new CayError('unavailable', 'The code interpreter broke off in the middle of a run');
