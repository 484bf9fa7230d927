import { z } from 'zod';

/** One thing that was tried from inside a sandbox. */
export const EnforcementCaseSchema = z.object({
  id: z.string().describe('Does not change between reports.'),
  area: z
    .string()
    .describe(
      '`direct`, `dns`, `name`, `tls`, `http`, `secret`, `kernel`, `files` or `limit`. Others may come.',
    ),
  title: z.string(),
  state: z
    .enum(['blocked', 'open', 'works', 'broken', 'skipped'])
    .describe(
      '`blocked` and `works` are as they have to be. `open`: the wall does not hold. `broken`: what is allowed does not work. `skipped`: it was not tried.',
    ),
  detail: z.string().describe('What was seen.'),
  ms: z.int(),
});
export type EnforcementCase = z.infer<typeof EnforcementCaseSchema>;

export const ENFORCEMENT_VERDICTS = ['enforced', 'not_enforced', 'incomplete'] as const;

/** What a platform was seen to enforce, tried from inside a sandbox that was made for it. */
export const EnforcementReportSchema = z.object({
  platform: z.string(),
  runtime: z.string(),
  at: z.string().describe('When it was made, ISO 8601.'),
  durationMs: z.int(),
  verdict: z
    .enum(ENFORCEMENT_VERDICTS)
    .describe(
      '`not_enforced`: a case is open. `incomplete`: none is open, and one that has to work is broken.',
    ),
  versions: z.object({
    server: z.string(),
    hostKernel: z.string(),
    sandboxKernel: z.string().describe('What a program inside reads in /proc/version.'),
  }),
  counts: z.object({
    blocked: z.int(),
    open: z.int(),
    works: z.int(),
    broken: z.int(),
    skipped: z.int(),
  }),
  cases: z.array(EnforcementCaseSchema),
});
export type EnforcementReport = z.infer<typeof EnforcementReportSchema>;

export const EnforcementReportListSchema = z.object({ reports: z.array(EnforcementReportSchema) });
export const RunEnforcementSchema = z
  .object({ runtime: z.string().min(1).max(64).optional().describe("The platform's default if absent.") })
  .strict();
export type RunEnforcement = z.infer<typeof RunEnforcementSchema>;
