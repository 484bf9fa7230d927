import type { ToolName } from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { GuestParts } from '../guest-tools.ts';
import type { CommandParts } from '../run-command.ts';
import type { RunningCall, ToolOutcome } from '../tool.ts';

/**
 * A dialect: the tools that one family of models was trained with.
 *
 * **Terms.** A *dialect tool* has the name, description and schema that the model knows, and translates an
 * input to a *canonical tool* (`guest-tools.ts`, `run-command.ts`), which does the work. It never works by
 * itself.
 *
 * **Who calls.** `open-tools.ts`: it looks the tool up by name for each call of a model, parses the input
 * with `schema`, and calls `run`. `describe-tools.ts` reads names, descriptions and schemas for model APIs
 * and MCP.
 *
 * **Concurrency.** A dialect has no state. Calls of one tool run at once.
 *
 * **Errors.** What the model can correct is an outcome with `isError`, in words that the model has seen in
 * training; `run` rejects only where there is no sandbox to ask.
 *
 * **Cost.** None beside that of the canonical tool.
 *
 *     const readFile: DialectTool = {
 *       name: 'read_file',
 *       title: 'Read',
 *       description: 'Reads a file.',
 *       schema: z.object({ path: z.string() }),
 *       tier: 1,
 *       effect: 'reads',
 *       timeoutMs: 30_000,
 *       run: (parts, running, { path }: { path: string }) => read(parts, running, { file_path: path }),
 *     };
 *     export const mine: Dialect = dialectOf([readFile]);
 *
 * A new dialect is a file beside this one, which `DIALECTS` of `describe-tools.ts` names.
 */
export type ToolParts = GuestParts & CommandParts;

/**
 * What a repeated call may do if a server was killed before the result was recorded: `reads` runs again,
 * `commands` attaches to the command that was started, `changes` may have happened and never runs again.
 */
export type ToolEffect = 'reads' | 'changes' | 'commands';

/** One tool as a family of models knows it. */
export interface DialectTool {
  readonly name: string;
  readonly title: string;
  /** For the model. */
  readonly description: string;
  readonly schema: z.ZodType;
  readonly tier: 1 | 2;
  readonly effect: ToolEffect;
  /** How long it may take by default. */
  readonly timeoutMs: number;
  /** The timeout that the input asks for. */
  timeoutOf?(input: unknown): number | undefined;
  /** `input` was parsed with `schema`. */
  run(parts: ToolParts, running: RunningCall, input: never): Promise<ToolOutcome>;
}

export type Dialect = ReadonlyMap<string, DialectTool>;

/** A tool of the canonical dialect. */
export type CanonicalTools = { readonly [Name in ToolName]: DialectTool };

export const dialectOf = (tools: readonly DialectTool[]): Dialect =>
  new Map(tools.map((tool) => [tool.name, tool]));
