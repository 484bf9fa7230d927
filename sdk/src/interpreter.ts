/**
 * Code in a sandbox, in contexts that keep what it defines.
 *
 *     const { text } = await sandbox.runCode('x = 6 * 7\nx');            // '42'
 *     await sandbox.runCode('print(x)', { onStdout: console.log });       // the context still has x
 */
import type {
  CodeContext,
  CodeError,
  CodeEvent,
  CodeResult,
  CreateCodeContext,
  RunCode,
} from './protocol/index.ts';
import type { Transport } from './transport.ts';

interface CallOptions {
  signal?: AbortSignal;
}

export interface RunCodeOptions extends CallOptions, Omit<RunCode, 'code' | 'context'> {
  /** The context, or its id. Default: the one that every sandbox has for the language. */
  context?: CodeContext | string;
}

/** Called as it comes; the run goes on meanwhile. */
export interface CodeListeners {
  onStdout?(text: string): void;
  onStderr?(text: string): void;
  onResult?(result: CodeResult): void;
  onError?(error: CodeError): void;
}

/** What came of a run. What the code threw is `error`, and no exception. */
export interface CodeExecution {
  /** The text of the value of the last expression. */
  text: string | undefined;
  results: CodeResult[];
  stdout: string;
  stderr: string;
  error: CodeError | undefined;
  outcome: Extract<CodeEvent, { type: 'end' }>['outcome'];
  /** Which run of its context it was. */
  count: number;
}

export class Interpreter {
  readonly #transport: Transport;
  readonly #base: string;

  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#base = `/v1/sandboxes/${sandbox}/interpreter`;
  }

  /** Event by event. Leaving the loop interrupts the run. */
  async *stream(code: string, options: RunCodeOptions = {}): AsyncGenerator<CodeEvent, void, undefined> {
    const { signal, context, ...rest } = options;
    const json = { code, ...rest, ...(context !== undefined && { context: idOf(context) }) };
    yield* this.#transport.lines<CodeEvent>('POST', `${this.#base}/run`, { json, signal });
  }

  async run(code: string, options: RunCodeOptions & CodeListeners = {}): Promise<CodeExecution> {
    const { onStdout, onStderr, onResult, onError, ...rest } = options;
    const execution: CodeExecution = {
      text: undefined,
      results: [],
      stdout: '',
      stderr: '',
      error: undefined,
      outcome: 'died',
      count: 0,
    };
    for await (const event of this.stream(code, rest)) {
      switch (event.type) {
        case 'started':
          execution.count = event.count;
          break;
        case 'stdout':
          execution.stdout += event.text;
          onStdout?.(event.text);
          break;
        case 'stderr':
          execution.stderr += event.text;
          onStderr?.(event.text);
          break;
        case 'result': {
          const { type: _, ...result } = event;
          execution.results.push(result);
          if (result.main) execution.text = result.text;
          onResult?.(result);
          break;
        }
        case 'error': {
          const { type: _, ...error } = event;
          execution.error = error;
          onError?.(error);
          break;
        }
        case 'end':
          execution.outcome = event.outcome;
          break;
      }
    }
    return execution;
  }

  async contexts(options: CallOptions = {}): Promise<CodeContext[]> {
    const list = await this.#json<{ contexts: CodeContext[] }>('GET', '/contexts', options);
    return list.contexts;
  }

  /** A new context with its own variables. */
  createContext({ signal, ...request }: CallOptions & CreateCodeContext = {}): Promise<CodeContext> {
    return this.#json('POST', '/contexts', { signal, json: request });
  }

  /** Restarts its process, without its variables. */
  async restart(context: CodeContext | string, options: CallOptions = {}): Promise<void> {
    await this.#json('POST', `/contexts/${idOf(context)}/restart`, options);
  }

  /** Interrupts what runs in it, and keeps what it has. False if nothing was running. */
  async interrupt(context: CodeContext | string, options: CallOptions = {}): Promise<boolean> {
    const path = `/contexts/${idOf(context)}/interrupt`;
    return (await this.#json<{ interrupted: boolean }>('POST', path, options)).interrupted;
  }

  async remove(context: CodeContext | string, options: CallOptions = {}): Promise<void> {
    await this.#json('DELETE', `/contexts/${idOf(context)}`, options);
  }

  #json<T>(method: string, path: string, options: CallOptions & { json?: unknown }): Promise<T> {
    return this.#transport.json<T>(method, `${this.#base}${path}`, options);
  }
}

function idOf(context: CodeContext | string): string {
  return encodeURIComponent(typeof context === 'string' ? context : context.id);
}
