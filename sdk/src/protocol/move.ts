import { z } from 'zod';
import { SandboxSchema } from './sandbox.ts';

/**
 * What a sandbox may lose when it moves to another platform:
 * - `memory`: its processes end, and its command starts again.
 * - `volumes`: volumes and directories of the host stay where they are and are not mounted any more.
 * - `runtime`: the platform has no runtime of that name; its own default isolates the sandbox.
 * - `limits`: limits that the platform cannot enforce are lifted.
 * - `files`: files outside of the directories that the platform keeps.
 * - `snapshots`: snapshots and turns stay on the platform where they are.
 */
export const MOVE_LOSSES = ['memory', 'volumes', 'runtime', 'limits', 'files', 'snapshots'] as const;
export type MoveLoss = (typeof MOVE_LOSSES)[number];

export const MoveSandboxSchema = z.object({
  platform: z.string().min(1).max(64).describe('Where to'),
  drop: z
    .array(z.enum(MOVE_LOSSES))
    .max(MOVE_LOSSES.length)
    .default([])
    .describe('What may be left behind. Anything else that cannot go along makes the call fail.'),
  dryRun: z.boolean().default(false).describe('Only says what would go along and what would not.'),
});
export type MoveSandbox = z.input<typeof MoveSandboxSchema>;

export const MovePlanSchema = z.object({
  from: z.string(),
  to: z.string(),
  losses: z.array(z.object({ what: z.enum(MOVE_LOSSES), why: z.string() })),
  snapshots: z.int().describe('Snapshots and turns that go along.'),
});
export type MovePlan = z.infer<typeof MovePlanSchema>;

export const MovedSandboxSchema = z.object({
  sandbox: SandboxSchema,
  plan: MovePlanSchema,
  moved: z.boolean().describe('False after a dry run.'),
});
export type MovedSandbox = z.infer<typeof MovedSandboxSchema>;
