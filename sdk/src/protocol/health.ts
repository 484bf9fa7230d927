import { z } from 'zod';

/** `warn`: it works, and the operator should look. `critical`: new work is refused or fails. */
export const HEALTH_LEVELS = ['ok', 'warn', 'critical'] as const;

/**
 * How the server is, as one verdict that a load balancer can route by and the findings that it comes from.
 */
export const HealthSchema = z.object({
  verdict: z.enum(HEALTH_LEVELS).describe('The worst of the checks.'),
  checks: z.array(z.object({ name: z.string(), level: z.enum(HEALTH_LEVELS), detail: z.string() })),
  sandboxes: z
    .record(z.string(), z.int())
    .describe("Sandboxes by state: those of the caller's project, or for an admin all there are."),
  resources: z
    .array(
      z.object({
        name: z.enum(['memory', 'disk', 'pids']),
        level: z.enum(HEALTH_LEVELS),
        total: z.number(),
        free: z.number(),
        warnShare: z.number().describe('The share in use at which the level is `warn`, and room is made.'),
        criticalShare: z.number().describe('The share in use at which new sandboxes are refused.'),
      }),
    )
    .describe('What the platforms have, in bytes or processes. Those that measure nothing are not in it.'),
  pool: z
    .object({ ready: z.int(), wanted: z.int() })
    .nullable()
    .describe('The warm pool; null where there is none.'),
  uptimeMs: z.int(),
  eventLoopDelayMs: z
    .number()
    .describe("How late the server's own turns come, at the 99th percentile of the last minute or so."),
  serverMemoryBytes: z.int(),
  recentErrors: z
    .array(z.object({ atMs: z.int(), message: z.string() }))
    .describe('The newest last. What callers did wrong is not in here.'),
});
export type Health = z.infer<typeof HealthSchema>;

/** A resource of this installation that no record accounts for. */
export const OrphanSchema = z.object({
  kind: z
    .string()
    .describe(
      "What it is in the platform's own words: `container`, `cgroup`, `tree`, `pod`. Others may come.",
    ),
  name: z.string(),
});
export const OrphansSchema = z.object({ orphans: z.array(OrphanSchema) });
export type Orphans = z.infer<typeof OrphansSchema>;
