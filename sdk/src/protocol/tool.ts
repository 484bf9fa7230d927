import { z } from 'zod';
import { SnapshotIdSchema } from './id.ts';
import { UserSchema } from './spec.ts';

/**
 * An agent tool is one call of a model that is carried out in a sandbox: `bash`, `read`, `edit` and so on. A
 * dialect is the set of tools and parameters that one family of models was trained with.
 */
export const TOOL_DIALECTS = ['claude', 'codex', 'anthropic'] as const;
export const ToolDialectSchema = z.enum(TOOL_DIALECTS);
export type ToolDialect = z.infer<typeof ToolDialectSchema>;

/** How a model API takes the description of a tool. */
export const TOOL_FORMATS = ['anthropic', 'openai', 'mcp', 'ai-sdk'] as const;
export const ToolFormatSchema = z.enum(TOOL_FORMATS);
export type ToolFormat = z.infer<typeof ToolFormatSchema>;

export const ToolCallSchema = z
  .object({
    input: z.record(z.string(), z.unknown()).default({}).describe('The parameters of the tool.'),
    toolCallId: z
      .string()
      .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
      .optional()
      .describe('One id runs once, however often it is sent; its answer is given again.'),
    dialect: ToolDialectSchema.default('claude'),
    timeoutMs: z
      .int()
      .min(1)
      .max(7_200_000)
      .optional()
      .describe("How long the call may take. Default: the tool's own, or that of the operator."),
    maxOutputBytes: z
      .int()
      .min(256)
      .max(1024 * 1024)
      .optional()
      .describe('How much text the answer may have. Default 30000.'),
    user: UserSchema.optional().describe("As whom it runs. Default: the sandbox's user."),
    snapshot: z
      .boolean()
      .optional()
      .describe('Take a snapshot of the files after the call; the answer has its id.'),
  })
  .strict();
export type ToolCall = z.output<typeof ToolCallSchema>;
export type ToolCallInput = z.input<typeof ToolCallSchema>;

export const ToolContentSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('image'), data: z.string().describe('base64'), mimeType: z.string() }),
  z.object({
    type: z.literal('resource'),
    resource: z.object({
      uri: z.string(),
      mimeType: z.string(),
      blob: z.string().describe('base64'),
    }),
  }),
]);
export type ToolContent = z.infer<typeof ToolContentSchema>;

export const ToolResultSchema = z.object({
  tool: z.string(),
  toolCallId: z.string().optional(),
  tier: z
    .union([z.literal(1), z.literal(2)])
    .describe('1: the guest answered without a process. 2: a process ran.'),
  content: z.array(ToolContentSchema).describe('What the model gets.'),
  structured: z.record(z.string(), z.unknown()).describe('The same facts for programs.'),
  exitCode: z.int().nullable().optional().describe('Of the process; null while it runs.'),
  isError: z.boolean().describe('The tool could not do what was asked; `content` says why.'),
  error: z
    .object({
      code: z.string(),
      message: z.string(),
      hint: z.string().optional(),
      details: z.record(z.string(), z.unknown()).optional(),
    })
    .optional(),
  durationMs: z.number(),
  truncated: z
    .object({
      omittedBytes: z.int(),
      savedTo: z.string().optional().describe('A file in the sandbox that has the whole output.'),
    })
    .optional()
    .describe('Output was left out between its head and its tail.'),
  snapshot: SnapshotIdSchema.optional(),
  repeated: z.boolean().describe('It ran before; this is the answer of then.'),
});
export type ToolResult = z.infer<typeof ToolResultSchema>;

/** What a streamed call tells. The last event is the result. */
export const ToolEventSchema = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('progress'),
    bytes: z.int().describe('Output so far.'),
    text: z.string().describe('The newest output.'),
  }),
  z.object({ type: z.literal('result'), result: ToolResultSchema }),
  z.object({ type: z.literal('error'), error: z.object({ code: z.string(), message: z.string() }) }),
]);
export type ToolEvent = z.infer<typeof ToolEventSchema>;

export const ToolListSchema = z.object({
  dialect: ToolDialectSchema,
  format: ToolFormatSchema,
  tools: z.array(z.record(z.string(), z.unknown())),
});
export type ToolList = z.infer<typeof ToolListSchema>;
