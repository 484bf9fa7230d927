import { z } from 'zod';
import { CayEventSchema } from './resource.ts';

/**
 * The audit: every event with its hash, which is over the event itself and over the hash of the one before
 * it. Whoever has noted a hash can tell later that nothing before it was changed.
 */
export const AuditEventSchema = CayEventSchema.extend({
  /** In hex. */
  hash: z.string(),
});
export type AuditEvent = z.infer<typeof AuditEventSchema>;

export const AuditVerdictSchema = z.object({
  ok: z.boolean(),
  /** How many events were walked, and how many checkpoints among them. */
  events: z.int(),
  checkpoints: z.int(),
  /** The first and the last event that are there and in order; null if there are none. */
  first: z.int().nullable(),
  last: z.int(),
  /** The hash of the last one: to be noted elsewhere. */
  head: z.string(),
  /** Events up to this one were pruned; the chain begins behind them. */
  pruned: z.int(),
  /**
   * In how many places behind that events of one project were pruned. Each is sealed, and the chain goes on
   * behind it.
   */
  gaps: z.int(),
  /** Whether the seals of checkpoints were checked too. */
  sealed: z.boolean(),
  /** The first event that is not as it was recorded. */
  broken: z.object({ id: z.int(), reason: z.string() }).optional(),
});
export type AuditVerdict = z.infer<typeof AuditVerdictSchema>;
