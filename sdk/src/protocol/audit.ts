import { z } from 'zod';
import { CayEventSchema } from './event.ts';

/**
 * The audit: every event with its hash, which is over the event itself and over the hash of the one before
 * it. A reader that has noted a hash can check later that nothing before it was changed.
 */
export const AuditEventSchema = CayEventSchema.extend({
  hash: z.string().describe('In hex.'),
});
export type AuditEvent = z.infer<typeof AuditEventSchema>;

export const AuditVerdictSchema = z.object({
  ok: z.boolean(),
  events: z.int().describe('How many events were walked, and how many checkpoints among them.'),
  checkpoints: z.int(),
  first: z
    .int()
    .nullable()
    .describe('The first and the last event that are there and in order; null if there are none.'),
  last: z.int(),
  head: z.string().describe('The hash of the last one: to be noted elsewhere.'),
  pruned: z.int().describe('Events up to this one were pruned; the chain begins behind them.'),
  gaps: z
    .int()
    .describe(
      'In how many places behind that events of one project were pruned. Each is sealed, and the chain goes on behind it.',
    ),
  sealed: z.boolean().describe('Whether the seals of checkpoints were checked too.'),
  broken: z
    .object({ id: z.int(), reason: z.string() })
    .optional()
    .describe('The first event that is not as it was recorded.'),
});
export type AuditVerdict = z.infer<typeof AuditVerdictSchema>;
