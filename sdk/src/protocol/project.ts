import { z } from 'zod';
import { NetworkPolicySchema } from './egress.ts';
import { QuotaSchema } from './quota.ts';

/** A tenant. Keys, sandboxes, snapshots and quotas belong to one project. */
export const ProjectSchema = z.object({
  id: z.string(),
  name: z.string(),
  quota: QuotaSchema.describe('The quota that an admin set.'),
  effectiveQuota: QuotaSchema.describe(
    "The quota that is enforced, with the operator's defaults and maxima. Null means no limit.",
  ),
  network: NetworkPolicySchema.nullable().describe(
    'The most that its sandboxes reach. Null means the most that the installation allows.',
  ),
  createdAtMs: z.int(),
});
export type Project = z.infer<typeof ProjectSchema>;
