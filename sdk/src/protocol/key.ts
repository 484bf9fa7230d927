import { z } from 'zod';

export const KeyRoleSchema = z.enum(['admin', 'member', 'metrics']);

export const KeySchema = z.object({
  id: z.string(),
  name: z.string(),
  project: z.string(),
  role: KeyRoleSchema.describe(
    '`admin` may do everything in all projects, `member` everything in its own project. `metrics` may read `/metrics` and nothing else.',
  ),
  hint: z.string().describe("The key's first characters, to recognise it by."),
  createdAtMs: z.int(),
  lastUsedAtMs: z.int().nullable(),
});
export type Key = z.infer<typeof KeySchema>;
