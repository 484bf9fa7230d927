/**
 * Agent tools of a sandbox.
 *
 *     const { content } = await sandbox.tools.bash({ command: 'npm test' }, { toolCallId: call.id });
 *     const found = await sandbox.tools.grep({ pattern: 'TODO', output_mode: 'content' });
 *
 * `sandbox.tool(name, input)` is the same for a name that a model chose.
 */
import type {
  ToolCallInput,
  ToolDialect,
  ToolEvent,
  ToolFormat,
  ToolInput,
  ToolList,
  ToolName,
  ToolResult,
} from './protocol/index.ts';
import { connect, type ConnectOptions, type Transport } from './transport.ts';

export interface ToolOptions extends Omit<ToolCallInput, 'input'> {
  signal?: AbortSignal;
}

type Call<Name extends ToolName> = (input: ToolInput<Name>, options?: ToolOptions) => Promise<ToolResult>;

export class ToolBox {
  readonly #transport: Transport;
  readonly #base: string;

  /** @internal Made with its sandbox. */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#base = `/v1/sandboxes/${id}/tools`;
  }

  readonly bash: Call<'bash'> = (...given) => this.call('bash', ...given);
  readonly bashOutput: Call<'bash_output'> = (...given) => this.call('bash_output', ...given);
  readonly bashInput: Call<'bash_input'> = (...given) => this.call('bash_input', ...given);
  readonly bashKill: Call<'bash_kill'> = (...given) => this.call('bash_kill', ...given);
  readonly read: Call<'read'> = (...given) => this.call('read', ...given);
  readonly write: Call<'write'> = (...given) => this.call('write', ...given);
  readonly edit: Call<'edit'> = (...given) => this.call('edit', ...given);
  readonly multiEdit: Call<'multi_edit'> = (...given) => this.call('multi_edit', ...given);
  readonly applyPatch: Call<'apply_patch'> = (...given) => this.call('apply_patch', ...given);
  readonly list: Call<'list'> = (...given) => this.call('list', ...given);
  readonly glob: Call<'glob'> = (...given) => this.call('glob', ...given);
  readonly grep: Call<'grep'> = (...given) => this.call('grep', ...given);

  /** Any tool of any dialect. */
  call(
    name: string,
    input: Record<string, unknown>,
    { signal, ...rest }: ToolOptions = {},
  ): Promise<ToolResult> {
    const json: ToolCallInput = { input, ...rest };
    return this.#transport.json('POST', `${this.#base}/${encodeURIComponent(name)}`, { json, signal });
  }

  /** The same with progress events; the last event is the result. */
  async *stream(
    name: string,
    input: Record<string, unknown>,
    { signal, ...rest }: ToolOptions = {},
  ): AsyncGenerator<ToolEvent, void, undefined> {
    const path = `${this.#base}/${encodeURIComponent(name)}`;
    const json: ToolCallInput = { input, ...rest };
    yield* this.#transport.lines<ToolEvent>('POST', path, { json, signal });
  }
}

/** Tools as a model API takes them: pass `tools` on to it. */
export async function describeTools({
  dialect,
  format,
  signal,
  ...options
}: ConnectOptions & {
  dialect?: ToolDialect;
  format?: ToolFormat;
  signal?: AbortSignal;
} = {}): Promise<ToolList> {
  return connect(options).json('GET', '/v1/tools', { query: { dialect, format }, signal });
}
