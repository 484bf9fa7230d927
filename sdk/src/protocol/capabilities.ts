import { z } from 'zod';
import { PolicyFactsSchema } from './policy.ts';

/**
 * What a backend can do, as data. Each is true when it is wired for the default runtime and its probe, if it
 * had one, did not see it fail; `probes` says what was seen to work. `notes` says why one is false, or how it
 * is done where that matters. Using what is false is an `unsupported` error.
 */
export const ABILITIES = [
  /** Commands run in isolation from the host's kernel, files and processes. */
  'isolation',
  /** To the host's kernel no two sandboxes have a user in common: each has a range of ids of its own. */
  'ownIds',
  /** Commands are real processes: any program of the image runs, not a simulation. */
  'processes',
  'pty',
  'signals',
  /** A timeout kills daemons too. */
  'treeKill',
  /** Running as another user than the default. */
  'users',
  'xattrs',
  'watch',
  'tar',
  'ports',
  'cpuLimit',
  'memoryLimit',
  'diskLimit',
  'pidsLimit',
  'openFilesLimit',
  /** Memory and CPU of a running sandbox can be changed. */
  'resize',
  'readOnlyRoot',
  /** A sandbox goes on when the server ends, and is found again. */
  'survivesRestart',
  'freeze',
  /** One that is not used costs nothing but its files, and wakes with them alone. */
  'suspend',
  /** Files are kept, cloned, rolled back, compared, and moved as archives. */
  'snapshots',
  /** Snapshots and archives have the extended attributes of files. */
  'snapshotXattrs',
  /** Snapshots have all files of the root, and not those of a few directories alone. */
  'snapshotRoot',
  /**
   * Processes are kept too, go on in clones, and a sandbox hibernates. Of the default runtime; another may
   * differ.
   */
  'memorySnapshots',
  /** Named volumes that outlive sandboxes, and that several mount at once. */
  'volumes',
  /** The size of a volume is enforced. */
  'volumeSize',
  /** Volumes are cloned, and snapshots of them taken. */
  'volumeCopies',
  /** Volumes are exported and imported as tar archives. */
  'volumeArchives',
  /** A directory of a volume can be mounted alone. */
  'volumeSubpath',
  /** Memory is mounted as a directory, with a size. */
  'tmpfs',
  /**
   * Buckets can be mounted: what is read and written goes to the S3 server, and is on no disk of the sandbox.
   */
  'bucketMounts',
  /** Directories of the host can be mounted, where the operator allows their path. */
  'hostPaths',
] as const;
export type Ability = (typeof ABILITIES)[number];

/** Whether the cluster enforces what is asked of it, as far as that was tried. */
export const NetworkEnforcementSchema = z.object({
  state: z
    .enum(['enforced', 'not_enforced', 'unknown'])
    .describe('`unknown`: it could not be tried, or not yet.'),
  reason: z.string().describe('What was seen, or why nothing was.'),
});
export type NetworkEnforcement = z.infer<typeof NetworkEnforcementSchema>;

/** What was seen to work on one runtime, in a sandbox that was made to find out. */
export const RuntimeProbeSchema = z.object({
  runtime: z.string(),
  state: z
    .enum(['pending', 'done', 'failed'])
    .describe('`pending`: it has not been tried yet. `failed`: no sandbox started on it.'),
  atMs: z.number().nullable().describe('When it was tried.'),
  verified: z
    .partialRecord(z.enum(ABILITIES), z.boolean())
    .describe(
      'The abilities that were tried, and whether they worked. The others are wired and were not tried.',
    ),
  notes: z.partialRecord(z.enum(ABILITIES), z.string()).describe('Why one did not work.'),
  reason: z.string().optional().describe('Why no sandbox started.'),
});
export type RuntimeProbe = z.infer<typeof RuntimeProbeSchema>;

const OneBackendSchema = z.object({
  backend: z.string(),
  runtimes: z.array(z.string()).describe('Those that work here and may be asked for.'),
  templates: z.array(z.string()),
  abilities: z.record(z.enum(ABILITIES), z.boolean()),
  notes: z
    .partialRecord(z.enum(ABILITIES), z.string())
    .describe('Why an ability is missing, or what it does not cover.'),
  probes: z
    .array(RuntimeProbeSchema)
    .optional()
    .describe(
      'What a sandbox of each runtime was seen to do on this machine. Absent where the backend is not probed: its abilities are then what is wired.',
    ),
  enforcement: z
    .object({ network: NetworkEnforcementSchema })
    .optional()
    .describe(
      'Of backends that do not isolate by themselves: `network` is whether a cluster enforces that sandboxes have no network.',
    ),
});

/** One of several platforms behind one API. */
export const PlatformSchema = z.object({
  name: z.string(),
  capabilities: OneBackendSchema.optional().describe('Absent while it does not answer.'),
  away: z.string().optional().describe('Why it does not answer.'),
});
export type Platform = z.infer<typeof PlatformSchema>;

export const CapabilitiesSchema = OneBackendSchema.extend({
  platforms: z
    .array(PlatformSchema)
    .optional()
    .describe(
      "Where there are several platforms: each of them, the default first. The abilities beside this are the default's, runtimes and templates those of all.",
    ),
  policy: PolicyFactsSchema.optional().describe(
    'What may be asked for on this server, whatever the backend could do.',
  ),
});
export type Capabilities = z.infer<typeof CapabilitiesSchema>;
