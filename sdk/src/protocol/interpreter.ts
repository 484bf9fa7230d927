import { z } from 'zod';
import { EnvSchema, execText } from './spec.ts';

/**
 * The code interpreter: code that runs in a context of a sandbox and keeps what it defines for the next run.
 *
 * A context is a process inside the sandbox, with a language and a directory. Each language has one by
 * default, and more can be made. One run follows the other in a context; contexts run side by side. A context
 * lives as long as the sandbox's processes: over restarts of the server, in a snapshot with memory, and in
 * every fork that keeps processes.
 */
export const CODE_LANGUAGES = ['python', 'javascript', 'typescript', 'bash'] as const;
export const CodeLanguageSchema = z.enum(CODE_LANGUAGES);
export type CodeLanguage = z.infer<typeof CodeLanguageSchema>;

export const CodeContextIdSchema = z.string().regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the id of a context');

export const CodeContextSchema = z.object({
  id: CodeContextIdSchema,
  language: CodeLanguageSchema,
  cwd: z.string().describe('The directory that it began in.'),
});
export type CodeContext = z.infer<typeof CodeContextSchema>;
export const CodeContextListSchema = z.object({ contexts: z.array(CodeContextSchema) });

export const CreateCodeContextSchema = z
  .object({
    language: CodeLanguageSchema.default('python'),
    cwd: execText(4096)
      .optional()
      .describe('Where it begins. A relative path is below the home of the user.'),
  })
  .strict();
export type CreateCodeContext = z.input<typeof CreateCodeContextSchema>;

export const RunCodeSchema = z
  .object({
    code: z.string().max(16 * 1024 * 1024),
    language: CodeLanguageSchema.optional().describe('Whose default context it runs in. Default `python`.'),
    context: CodeContextIdSchema.optional().describe(
      'The context that it runs in, instead of a default one.',
    ),
    env: EnvSchema.default({}).describe('Variables of this run alone.'),
    timeoutMs: z
      .int()
      .min(1)
      .max(24 * 3600 * 1000)
      .optional()
      .describe('After this the run is interrupted, counted from its beginning.'),
  })
  .strict()
  .refine(({ language, context }) => language === undefined || context === undefined, {
    message: 'a context has a language: give one of both',
  });
export type RunCode = z.input<typeof RunCodeSchema>;

/** A value in every form that it has of itself. Images are base64. */
export const CodeFormsSchema = z.object({
  text: z.string().optional(),
  html: z.string().optional(),
  markdown: z.string().optional(),
  svg: z.string().optional(),
  png: z.string().optional(),
  jpeg: z.string().optional(),
  pdf: z.string().optional(),
  latex: z.string().optional(),
  json: z.unknown().optional(),
  javascript: z.string().optional(),
  data: z
    .record(z.string(), z.array(z.unknown()))
    .optional()
    .describe('The columns of a table, such as a data frame.'),
  chart: z
    .looseObject({ type: z.string() })
    .optional()
    .describe('What is drawn in a figure, as data: its kind, labels and points.'),
});
export type CodeForms = z.infer<typeof CodeFormsSchema>;

/** How a run ended. */
export const CODE_ENDS = [
  'completed',
  /** The code threw. */
  'failed',
  /** A caller, or the end of its time, interrupted it. */
  'interrupted',
  'timed_out',
  /** Its process died. The context restarts, without its variables. */
  'died',
] as const;

export const CodeEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('started'), count: z.int().describe('Which run of its context it is.') }),
  z.object({ type: z.literal('stdout'), text: z.string() }),
  z.object({ type: z.literal('stderr'), text: z.string() }),
  CodeFormsSchema.extend({
    type: z.literal('result'),
    main: z
      .boolean()
      .describe('Whether it is the value of the last expression, or was displayed on the way.'),
  }),
  z.object({
    type: z.literal('error'),
    name: z.string(),
    value: z.string(),
    traceback: z.string(),
  }),
  z.object({ type: z.literal('end'), outcome: z.enum(CODE_ENDS) }),
]);
export type CodeEvent = z.infer<typeof CodeEventSchema>;
export type CodeResult = Omit<Extract<CodeEvent, { type: 'result' }>, 'type'>;
export type CodeError = Omit<Extract<CodeEvent, { type: 'error' }>, 'type'>;

export const InterruptedSchema = z.object({
  interrupted: z.boolean().describe('False if nothing was running.'),
});
