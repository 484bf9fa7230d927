import { z } from 'zod';
import { CommandEndSchema } from './command.ts';
import { SANDBOX_STATES } from './sandbox.ts';

/**
 * How a sandbox that runs a job stands. The counts are of its commands: those that it remembers, and those
 * that are recorded; of a sandbox that does not run, those that are recorded.
 */
export const SandboxStatusSchema = z.object({
  id: z.string(),
  uid: z.string().nullable().describe('As the sandbox has it.'),
  phase: z.enum(SANDBOX_STATES),
  complete: z
    .boolean()
    .describe(
      'The command that the sandbox was created with has ended, or nothing of the sandbox goes on by itself: it has failed, or is being removed.',
    ),
  active: z.int(),
  succeeded: z.int().describe('Exited with 0.'),
  failed: z.int().describe('Ended in any other way.'),
  reason: z.string().nullable(),
  message: z.string().nullable(),
  end: CommandEndSchema.optional().describe('How the command ended that the sandbox was created with.'),
  pod: z
    .object({ namespace: z.string(), name: z.string(), node: z.string().optional() })
    .optional()
    .describe(
      'Where a cluster runs it. Absent elsewhere, and while it does not run or the cluster does not answer.',
    ),
});
export type SandboxStatus = z.infer<typeof SandboxStatusSchema>;

/** The three that waiting for a command can come to. */
export const WAIT_OUTCOMES = [
  /** The command has ended, and `end` says how. */
  'completed',
  /** The time was up, and it had not. */
  'timed_out',
  /**
   * The sandbox was stopped, failed or was removed before the command ended; its end is unknown. `end` has
   * the reason.
   */
  'lost',
] as const;

export const WaitedSchema = z.object({
  outcome: z.enum(WAIT_OUTCOMES),
  end: CommandEndSchema.optional(),
  status: SandboxStatusSchema,
});
export type Waited = z.infer<typeof WaitedSchema>;
