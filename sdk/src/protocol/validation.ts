import { z } from 'zod';
import { ERROR_CODES, type ErrorCode } from './error.ts';

/** Something about a request that the chosen platform, or the server as it is now, does not honour. */
export const ProblemSchema = z.object({
  code: z.enum(ERROR_CODES as [ErrorCode, ...ErrorCode[]]),
  message: z.string(),
  hint: z.string().optional(),
  field: z.string().optional().describe('What of the request it is about, such as `limits.diskBytes`.'),
  refused: z
    .boolean()
    .describe(
      'Whether a create is refused because of it. If not the sandbox is made, and this of the request is not honoured.',
    ),
});
export type Problem = z.infer<typeof ProblemSchema>;

/** What would become of a create, without making anything. */
export const ValidationSchema = z.object({
  ok: z.boolean().describe('Whether it would not be refused now.'),
  platform: z
    .string()
    .nullable()
    .describe(
      'The platform that would make it, or the one backend that there is; null if none can be chosen.',
    ),
  problems: z.array(ProblemSchema),
});
export type Validation = z.infer<typeof ValidationSchema>;
