import { z } from 'zod';

/**
 * One reading of what a sandbox uses. Counters only grow within one incarnation. A value that the platform does
 * not measure is null, and so is a limit that does not exist.
 */
export const StatsSchema = z.object({
  atMs: z.int(),
  cpuUsageMs: z.number().min(0),
  memoryBytes: z.int().min(0),
  memoryLimitBytes: z.int().min(0).nullable(),
  pids: z.int().min(0),
  diskBytes: z.int().min(0).nullable(),
  diskLimitBytes: z.int().min(0).nullable(),
  networkRxBytes: z.int().min(0).nullable(),
  networkTxBytes: z.int().min(0).nullable(),
  oomKills: z
    .int()
    .min(0)
    .describe('How often the kernel, or the guest, ended a process for want of memory.'),
});
export type Stats = z.infer<typeof StatsSchema>;
