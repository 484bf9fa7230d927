import { z } from 'zod';

/**
 * One reading of what a sandbox uses. Counters only grow within one incarnation. A value that the platform
 * does not measure is null, and so is a limit that does not exist.
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
  diskReadBytes: z.int().min(0).nullable().describe('Read from the disk of the machine, without its cache.'),
  diskWriteBytes: z.int().min(0).nullable(),
  oomKills: z
    .int()
    .min(0)
    .describe('How often the kernel, or the guest, ended a process for want of memory.'),
});
export type Stats = z.infer<typeof StatsSchema>;

/** One reading of the past. The shares are of the time since the reading before. */
export const StatsSampleSchema = StatsSchema.omit({ oomKills: true }).extend({
  cpuPercent: z
    .number()
    .min(0)
    .nullable()
    .describe('In percent of one core, since the sample before; null for the first of an incarnation.'),
  memoryPercent: z.number().min(0).nullable().describe('Of its limit; null without one.'),
});
export type StatsSample = z.infer<typeof StatsSampleSchema>;

export const StatsHistorySchema = z.object({
  intervalMs: z.int().describe('How far apart samples are.'),
  keptMs: z.int().describe('How long a sample is kept.'),
  samples: z
    .array(StatsSampleSchema)
    .describe('The oldest first. There are none of the time when it did not run.'),
});
export type StatsHistory = z.infer<typeof StatsHistorySchema>;

/** What a sandbox takes on disk, in every state. A value that nobody knows is null. */
export const SandboxSpaceSchema = z.object({
  fileBytes: z.int().min(0).nullable().describe('Its own files, without those of its template.'),
  memoryImageBytes: z.int().min(0).nullable().describe('Its memory, while it is hibernated; 0 otherwise.'),
  snapshots: z.object({
    count: z.int(),
    bytes: z
      .int()
      .min(0)
      .nullable()
      .describe('Files and memory of all its snapshots, those in the store too.'),
  }),
});
export type SandboxSpace = z.infer<typeof SandboxSpaceSchema>;
