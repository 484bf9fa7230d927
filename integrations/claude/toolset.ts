/**
 * The tools of `agent_toolset_20260401`, carried out in a sandbox of the session.
 *
 *     await client.beta.environments.work
 *       .worker({ environmentId, environmentKey, tools: cayToolset(), memorySyncIntervalMs: null })
 *       .run();
 *
 * The worker itself, the environment key and the sessions' tokens stay outside of sandboxes.
 */
import type { BetaRunnableTool } from '@anthropic-ai/sdk/lib/tools/BetaRunnableTool';
import type { AgentToolContext } from '@anthropic-ai/sdk/tools/agent-toolset/node';
import { Sandbox, type ConnectOptions, type CreateSandboxInput, type ToolResult } from '@cay/sdk';
import { uploadDir } from '@cay/sdk/node';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join, posix } from 'node:path';

export interface CayToolsetOptions
  extends
    ConnectOptions,
    Pick<CreateSandboxInput, 'template' | 'limits' | 'network' | 'env' | 'timeoutMs' | 'onTimeout' | 'idle'> {
  /** What becomes of a session's sandbox when the worker lets go of it. Default: `pause`. */
  onClose?: 'pause' | 'kill';
  /** Takes a snapshot after each call that may have changed files. */
  snapshots?: boolean;
}

const USUAL_BASH_MS = 120_000;
const MOST_BASH_MS = 7_200_000;
const SKILLS = 'skills';

const text = { type: 'string' } as const;
const TOOLS = {
  bash: {
    description: 'Run a bash command in a persistent shell. Directory and variables stay for the next call.',
    properties: {
      command: text,
      restart: { type: 'boolean', description: 'Forget directory and variables first' },
      timeout_ms: { type: 'integer', description: 'How long this call may take' },
    },
    required: [],
  },
  read: {
    description: 'Read a text file.',
    properties: {
      file_path: text,
      view_range: { type: 'array', items: { type: 'integer' }, description: '[first, last] line, from 1' },
    },
    required: ['file_path'],
  },
  write: {
    description: 'Write a text file, making directories as needed.',
    properties: { file_path: text, content: text },
    required: ['file_path', 'content'],
  },
  edit: {
    description: 'Replace old_string with new_string in a file. It must be unique unless replace_all.',
    properties: { file_path: text, old_string: text, new_string: text, replace_all: { type: 'boolean' } },
    required: ['file_path', 'old_string', 'new_string'],
  },
  glob: {
    description: 'Find files by a pattern, the newest first.',
    properties: { pattern: text, path: text },
    required: ['pattern'],
  },
  grep: {
    description: 'Search the contents of files for a regular expression.',
    properties: { pattern: text, path: text },
    required: ['pattern'],
  },
} as const;

type Name = keyof typeof TOOLS;
type Input = Record<string, unknown>;

/** For `tools` of an `EnvironmentWorker`: it is called once for each session. */
export function cayToolset(
  options: CayToolsetOptions = {},
): (context: AgentToolContext) => BetaRunnableTool[] {
  return (context) => {
    const session = new SessionSandbox(options, context);
    return (Object.keys(TOOLS) as Name[]).map((name, index) => ({
      name,
      description: TOOLS[name].description,
      input_schema: {
        type: 'object' as const,
        properties: TOOLS[name].properties as unknown as Record<string, unknown>,
        required: [...TOOLS[name].required],
      },
      parse: (input: unknown) => input as Input,
      run: async (input: Input, call) => {
        const sandbox = await session.get();
        return answerOf(
          await run(sandbox, name, input, call?.toolUse.id, call?.signal ?? undefined, options),
        );
      },
      // One of them closes for all.
      ...(index === 0 && { close: () => session.close() }),
    }));
  };
}

function run(
  sandbox: Sandbox,
  name: Name,
  input: Input,
  toolCallId: string | undefined,
  signal: AbortSignal | undefined,
  { snapshots }: CayToolsetOptions,
): Promise<ToolResult> {
  // The id of the call makes a call that is sent again give the same answer, and run nothing twice.
  const given = { signal, ...(toolCallId !== undefined && { toolCallId }) };
  const changing = { ...given, ...(snapshots && { snapshot: true }) };
  switch (name) {
    case 'bash': {
      const { timeout_ms: timeout = USUAL_BASH_MS, ...rest } = input;
      const timeoutMs = Math.min(Math.max(Number(timeout) || USUAL_BASH_MS, 1), MOST_BASH_MS);
      return sandbox.tool('bash', rest, { ...changing, dialect: 'anthropic', timeoutMs });
    }
    case 'read': {
      const [first, last] = Array.isArray(input['view_range']) ? (input['view_range'] as number[]) : [];
      const range =
        first === undefined
          ? {}
          : { offset: first, ...(last !== undefined && last >= first && { limit: last - first + 1 }) };
      return sandbox.tool('read', { file_path: input['file_path'], ...range }, given);
    }
    case 'grep':
      return sandbox.tool('grep', { ...input, output_mode: 'content', '-n': true }, given);
    case 'glob':
      return sandbox.tool('glob', input, given);
    default:
      return sandbox.tool(name, input, changing);
  }
}

/** A result that is an error is thrown: the runner makes an error of it for the model. */
function answerOf({ content, isError }: ToolResult) {
  const said = content
    .map((block) => (block.type === 'text' ? block.text : ''))
    .filter((part) => part !== '')
    .join('\n');
  if (isError) throw new Error(said || 'The tool failed');
  const images = content.flatMap((block) =>
    block.type === 'image'
      ? [
          {
            type: 'image' as const,
            source: { type: 'base64' as const, media_type: block.mimeType as 'image/png', data: block.data },
          },
        ]
      : [],
  );
  return images.length === 0 ? said : [...(said ? [{ type: 'text' as const, text: said }] : []), ...images];
}

/** The sandbox of one session, made when a tool first needs it. The same session finds it again. */
class SessionSandbox {
  readonly #options: CayToolsetOptions;
  readonly #context: AgentToolContext;
  #made: Promise<Sandbox> | undefined;

  constructor(options: CayToolsetOptions, context: AgentToolContext) {
    this.#options = options;
    this.#context = context;
  }

  get(): Promise<Sandbox> {
    // A create that fails is tried again by the next call.
    return (this.#made ??= this.#make().catch((error: unknown) => {
      this.#made = undefined;
      throw error;
    }));
  }

  async close(): Promise<void> {
    const sandbox = await this.#made?.catch(() => undefined);
    if (this.#options.onClose === 'kill') await sandbox?.kill();
    else await sandbox?.pause();
  }

  async #make(): Promise<Sandbox> {
    const { template, limits, network, env, timeoutMs, onTimeout, idle } = this.#options;
    const { url, apiKey, fetch, WebSocket } = this.#options;
    const given = { template, limits, network, env, timeoutMs, onTimeout, idle };
    const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    // eslint-disable-next-line typescript/no-deprecated -- older workers give the id alone
    const session = this.#context.session?.id ?? this.#context.sessionId;
    const named = session === undefined ? {} : { name: nameOf(session), getOrCreate: true };
    const sandbox = await Sandbox.create(
      { ...defined, ...named, labels: { 'claude.session': session ?? '' } },
      { url, apiKey, fetch, WebSocket },
    );
    // The worker downloads the session's skills beside itself.
    const skills = join(this.#context.workdir, SKILLS);
    if (existsSync(skills)) await uploadDir(sandbox.files, skills, posix.join(sandbox.info.workdir, SKILLS));
    return sandbox;
  }
}

const nameOf = (session: string) =>
  `claude-${createHash('sha256').update(session).digest('hex').slice(0, 32)}`;
