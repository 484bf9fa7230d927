/** The tools of the MCP server. Each names its sandbox, because the protocol has no sessions. */
import {
  SnapshotRefSchema,
  TOOL_INPUTS,
  type FileChange,
  type Sandbox,
  type ToolName,
  type ToolResult,
} from '@cay/sdk/protocol';
import { z } from 'zod';
import type { McpCall, McpHost } from './mcp-host.ts';

/** What a tool answers, before it is put into the words of the protocol. */
export interface McpAnswer {
  content: ToolResult['content'];
  structured: Record<string, unknown>;
  isError?: boolean;
}

export interface McpTool {
  name: string;
  title: string;
  description: string;
  input: z.ZodObject;
  output: z.ZodObject;
  annotations: { readOnlyHint: boolean; destructiveHint: boolean; idempotentHint?: boolean };
  run(host: McpHost, input: never, call: McpCall): Promise<McpAnswer>;
}

const READS = { readOnlyHint: true, destructiveHint: false };
const ADDS = { readOnlyHint: false, destructiveHint: false };
const CHANGES = { readOnlyHint: false, destructiveHint: true };

const SandboxRef = z.string().min(1).max(80).describe('The id or the name of the sandbox');
const SandboxOutput = z.object({ id: z.string(), name: z.string().nullable(), state: z.string() });
const text = (words: string): McpAnswer['content'] => [{ type: 'text', text: words }];
const brief = ({ id, name, state }: Sandbox) => ({ id, name, state });
const called = ({ id, name, state }: Sandbox) => `${id}${name === null ? '' : ` (${name})`}: ${state}`;

const MOST_CHANGES = 500;

/** What the agent tools answer. */
const ToolOutput = z.object({
  tier: z.number().describe('1: answered without a process. 2: a process ran'),
  exit_code: z.number().nullable().optional(),
  duration_ms: z.number(),
  omitted_bytes: z.number().optional(),
  saved_to: z.string().optional().describe('A file in the sandbox that has the whole output'),
  facts: z.record(z.string(), z.unknown()),
});

/** A tool of `POST /v1/sandboxes/{id}/tools/{name}`, with the sandbox as its first parameter. */
function agentTool<Name extends ToolName>(
  name: Name,
  tool: Pick<McpTool, 'title' | 'description' | 'annotations'>,
): McpTool {
  const input = TOOL_INPUTS[name] as unknown as z.ZodObject;
  return {
    name,
    ...tool,
    input: z.object({ sandbox: SandboxRef, ...input.shape }).strict(),
    output: ToolOutput,
    async run(host, { sandbox, ...rest }: { sandbox: string }, call) {
      const result = await host.tool(sandbox, name, { input: rest }, call);
      const { tier, exitCode, durationMs, truncated, structured, content, isError } = result;
      return {
        content,
        // A command that failed is an answer: the model decides what that means.
        isError: isError && exitCode === undefined,
        structured: {
          tier,
          ...(exitCode !== undefined && { exit_code: exitCode }),
          duration_ms: durationMs,
          ...(truncated && { omitted_bytes: truncated.omittedBytes }),
          ...(truncated?.savedTo !== undefined && { saved_to: truncated.savedTo }),
          facts: structured,
        },
      };
    },
  };
}

function tool<Input extends z.ZodObject, Output extends z.ZodObject>(
  spec: Omit<McpTool, 'run' | 'input' | 'output'> & {
    input: Input;
    output: Output;
    run(
      host: McpHost,
      input: z.output<Input>,
      call: McpCall,
    ): Promise<{ content: McpAnswer['content']; structured: z.input<Output> }>;
  },
): McpTool {
  return spec as unknown as McpTool;
}

export const MCP_TOOLS: readonly McpTool[] = [
  tool({
    name: 'sandbox_create',
    title: 'Create a sandbox',
    description:
      'Makes an isolated computer with files and processes of its own, and returns its id for the other tools. ' +
      'With a name, a sandbox of that name that exists is returned.',
    annotations: ADDS,
    input: z
      .object({
        name: z
          .string()
          .min(1)
          .max(63)
          .optional()
          .describe('A name; a second create returns the same sandbox'),
        template: z.string().min(1).max(200).optional().describe('What it is made from. Default "base"'),
        timeout_ms: z.int().min(1000).optional().describe('After this time it ends by itself'),
      })
      .strict(),
    output: SandboxOutput,
    async run(host, { name, template, timeout_ms: timeoutMs }) {
      const made = await host.create({
        ...(name !== undefined && { name, getOrCreate: true }),
        ...(template !== undefined && { template }),
        ...(timeoutMs !== undefined && { timeoutMs }),
      });
      return { content: text(called(made)), structured: brief(made) };
    },
  }),
  tool({
    name: 'sandbox_list',
    title: 'List sandboxes',
    description: 'Lists the sandboxes of the project, newest first.',
    annotations: READS,
    input: z.object({}).strict(),
    output: z.object({ sandboxes: z.array(SandboxOutput) }),
    async run(host) {
      const all = await host.list();
      const lines = all.map(called).join('\n');
      return {
        content: text(lines === '' ? 'There is none' : lines),
        structured: { sandboxes: all.map(brief) },
      };
    },
  }),
  tool({
    name: 'sandbox_stop',
    title: 'Stop a sandbox',
    description: 'Ends the processes of a sandbox and keeps its files.',
    annotations: CHANGES,
    input: z.object({ sandbox: SandboxRef }).strict(),
    output: SandboxOutput,
    async run(host, { sandbox }) {
      const stopped = await host.stop(sandbox);
      return { content: text(called(stopped)), structured: brief(stopped) };
    },
  }),
  agentTool('bash', {
    title: 'Run a command',
    description:
      'Runs a command line with bash in a sandbox. With run_in_background it returns a bash_id at once. ' +
      'Long output keeps its head and tail; the whole is in a file that the answer names.',
    annotations: CHANGES,
  }),
  agentTool('bash_output', {
    title: 'Read a background command',
    description: 'Reads new output of a command in the background, and says whether it still runs.',
    annotations: READS,
  }),
  agentTool('bash_input', {
    title: 'Write to a background command',
    description: 'Writes text to the standard input of a command in the background.',
    annotations: CHANGES,
  }),
  agentTool('bash_kill', {
    title: 'End a background command',
    description: 'Ends a command in the background, with all its processes.',
    annotations: CHANGES,
  }),
  agentTool('read', {
    title: 'Read a file',
    description: 'Reads a text file of a sandbox with line numbers, or an image.',
    annotations: READS,
  }),
  agentTool('write', {
    title: 'Write a file',
    description: 'Writes a whole file of a sandbox, and makes its directories.',
    annotations: { ...CHANGES, idempotentHint: true },
  }),
  agentTool('edit', {
    title: 'Edit a file',
    description: 'Replaces text that occurs exactly once in a file, or everywhere with replace_all.',
    annotations: CHANGES,
  }),
  agentTool('apply_patch', {
    title: 'Apply a patch',
    description:
      'Adds, changes, moves and deletes files by a patch from "*** Begin Patch" to "*** End Patch".',
    annotations: CHANGES,
  }),
  agentTool('glob', {
    title: 'Find files',
    description: 'Finds files by a glob of their path, newest first.',
    annotations: READS,
  }),
  agentTool('grep', {
    title: 'Search files',
    description: 'Searches files with a regular expression.',
    annotations: READS,
  }),
  tool({
    name: 'expose_port',
    title: 'Expose a port',
    description: 'Makes a port of a sandbox reachable over HTTP, and returns its URL.',
    annotations: { ...ADDS, idempotentHint: true },
    input: z
      .object({
        sandbox: SandboxRef,
        port: z.int().min(1).max(65_535),
        public: z.boolean().optional().describe('Without a token. Default false'),
      })
      .strict(),
    output: z.object({ port: z.number(), url: z.string(), token: z.string().optional() }),
    async run(host, { sandbox, port, public: isPublic }) {
      const { url, token } = await host.expose(sandbox, port, isPublic ? 'public' : 'private');
      const how = token === undefined ? url : `${url} with the token ${token}`;
      return { content: text(how), structured: { port, url, ...(token !== undefined && { token }) } };
    },
  }),
  tool({
    name: 'checkpoint',
    title: 'Take a checkpoint',
    description:
      'Keeps the files of a sandbox as they are now, so that diff, rollback and fork can use them.',
    annotations: ADDS,
    input: z.object({ sandbox: SandboxRef, name: z.string().min(1).max(63).optional() }).strict(),
    output: z.object({ checkpoint: z.string(), name: z.string().nullable() }),
    async run(host, { sandbox, name }) {
      const kept = await host.checkpoint(sandbox, name);
      return { content: text(kept.id), structured: { checkpoint: kept.id, name: kept.name } };
    },
  }),
  tool({
    name: 'diff',
    title: 'Compare',
    description: 'Says which files changed since a checkpoint.',
    annotations: READS,
    input: z
      .object({
        sandbox: SandboxRef,
        from: SnapshotRefSchema.describe('A checkpoint, or the number of a turn'),
        to: SnapshotRefSchema.optional().describe('Another one. Default: now'),
      })
      .strict(),
    output: z.object({
      changes: z.array(z.object({ change: z.string(), path: z.string() })),
      more: z.boolean(),
    }),
    async run(host, { sandbox, from, to = 'now' }, call) {
      const changes: FileChange[] = [];
      let more = false;
      for await (const change of host.diff(sandbox, { from, to }, call)) {
        if (changes.length === MOST_CHANGES) {
          more = true;
          break;
        }
        changes.push(change);
      }
      const lines = changes.map(({ change, path }) => `${change} ${path}`);
      const words = lines.length === 0 ? 'Nothing changed' : lines.join('\n');
      return {
        content: text(more ? `${words}\n[there are more]` : words),
        structured: { changes: changes.map(({ change, path }) => ({ change, path })), more },
      };
    },
  }),
  tool({
    name: 'rollback',
    title: 'Roll back',
    description: 'Puts a sandbox back to a checkpoint. Its present state becomes a checkpoint first.',
    annotations: CHANGES,
    input: z
      .object({
        sandbox: SandboxRef,
        to: SnapshotRefSchema.describe('A checkpoint, or the number of a turn'),
        force: z.boolean().optional().describe('Also while tools are running'),
      })
      .strict(),
    output: z.object({ sandbox: z.string(), kept: z.string().nullable().describe('The state before') }),
    async run(host, { sandbox, to, force = false }) {
      const { sandbox: after, kept } = await host.rollback(sandbox, to, { force });
      return {
        content: text(kept === null ? called(after) : `${called(after)}; its state before is ${kept.id}`),
        structured: { sandbox: after.id, kept: kept?.id ?? null },
      };
    },
  }),
  tool({
    name: 'fork',
    title: 'Fork a sandbox',
    description:
      'Makes sandboxes that go on from the present state of another, with its processes where possible.',
    annotations: ADDS,
    input: z.object({ sandbox: SandboxRef, count: z.int().min(1).max(16).optional() }).strict(),
    output: z.object({ sandboxes: z.array(SandboxOutput) }),
    async run(host, { sandbox, count = 1 }) {
      const made = await host.fork(sandbox, count);
      return { content: text(made.map(called).join('\n')), structured: { sandboxes: made.map(brief) } };
    },
  }),
];
