import { z } from 'zod';

/** Something that happened, as the event log has it. */
export const CayEventSchema = z.object({
  id: z.int(),
  atMs: z.int(),
  type: z.string(),
  project: z.string().nullable(),
  sandbox: z.string().nullable(),
  key: z
    .string()
    .nullable()
    .describe(
      'The key that asked for it; null if no key did: the server itself, a visitor, or a holder of a token.',
    ),
  actor: z
    .string()
    .nullable()
    .optional()
    .describe('The name of that key, or its id after it was revoked. In lists and streams of events.'),
  outcome: z.string().describe('`ok`, or the code of the error that it ended in.'),
  data: z.record(z.string(), z.unknown()),
});
export type CayEvent = z.infer<typeof CayEventSchema>;
