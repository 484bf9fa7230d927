/**
 * Agent tools: one call of a model, carried out in a sandbox.
 *
 * **Terms.** A *tool* has a name, an input that a schema validates, and a result with content blocks for the
 * model and facts for programs. A *dialect* is the set of names and parameters that one family of models was
 * trained with; every dialect is translated to the same canonical tools (`sdk/src/protocol/tool-input.ts`). A
 * *tier* says how a tool works: tier 1 is answered by the guest on a thread with the user's rights, tier 2
 * runs a process through `commands`.
 *
 * **Who calls.** The REST API and MCP, once for each call of a model.
 *
 * **Once.** Calls with the same `toolCallId` for the same sandbox run once: at the same time they share one
 * run, later they get the recorded result, also from another server. A command is started under an
 * idempotency key made of the id, so a server that was killed meanwhile attaches to it again. Of a tier-1
 * tool that changes files a killed server cannot know whether it was done; the repeated call says so
 * (`outcome_unknown`) rather than do it twice. The last 512 results of a sandbox are kept.
 *
 * **In flight.** A call counts as a command that a client waits for: a pause and a turn wait for it, as long
 * as they wait for commands. A rollback is refused (`details.reason` is `tools_in_flight`) unless it is
 * forced.
 *
 * **Concurrency.** Any number of calls of one sandbox run at once, on files that they share: the order of two
 * that change the same file is that of the guest.
 *
 * **Errors.** A tool that cannot do what was asked is a result with `isError`. Verbs reject only where there
 * is no tool call at all: `not_found` for a sandbox or tool, `invalid_argument` for an input that the schema
 * refuses, `conflict` for a `toolCallId` that was used for another call, `unsupported` where the backend has
 * no tools.
 *
 * **Cost.** Tier 1 is one round trip to the guest. A `toolCallId` adds two small files.
 *
 *     const result = await tools.call(principal, 'my-box', 'grep', { input: { pattern: 'TODO' } });
 *     for (const block of result.content) if (block.type === 'text') show(block.text);
 */
import type { ToolCall, ToolCallInput, ToolDialect, ToolFormat, ToolResult } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface ToolProgress {
  /** Output so far. */
  bytes: number;
  /** The newest output, at most a few kilobytes. */
  text: string;
}

export interface ToolCallOptions {
  /** Aborting it detaches the caller. With a `toolCallId` the tool goes on; without one it is ended. */
  signal?: AbortSignal | undefined;
  onProgress?(progress: ToolProgress): void;
}

export interface ToolVerbs {
  call(
    principal: Principal,
    ref: string,
    name: string,
    call: ToolCallInput,
    options?: ToolCallOptions,
  ): Promise<ToolResult>;
  /** The tools of a dialect as a model API takes them. */
  describe(options: { dialect: ToolDialect; format: ToolFormat }): Record<string, unknown>[];
  /** How many calls are under way in a sandbox. */
  inFlight(id: string): number;
}

/** What a tool finds out, before it becomes a `ToolResult`. */
export type ToolOutcome = Pick<ToolResult, 'content' | 'structured'> &
  Partial<Pick<ToolResult, 'exitCode' | 'isError' | 'error' | 'truncated'>>;

/** One call on its way. */
export interface RunningCall {
  principal: Principal;
  /** The id of the sandbox. */
  sandbox: string;
  user: string;
  workdir: string;
  call: ToolCall;
  timeoutMs: number;
  /** Aborts when no caller waits any more. */
  signal: AbortSignal;
  onProgress(progress: ToolProgress): void;
}
