import type { ToolName } from '@cay/sdk/protocol';
import type { z } from 'zod';
import type { GuestParts } from '../guest-tools.ts';
import type { CommandParts } from '../run-command.ts';
import type { RunningCall, ToolOutcome } from '../tool.ts';

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
