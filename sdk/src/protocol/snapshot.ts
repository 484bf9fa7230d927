import { z } from 'zod';
import { LabelsSchema, PlatformNameSchema } from './spec.ts';
import { SandboxIdSchema, SnapshotIdSchema } from './id.ts';

/**
 * A Snapshot is what a sandbox was at one moment: its files, and with `memory` its processes too.
 * It never changes. The snapshots of a sandbox and of its forks form a tree: the parent of a snapshot
 * is the one that its sandbox had last taken, or gone back to, or come from.
 *
 *     start ─── turn 1 ─── turn 2 ─── "works" ─── turn 3 (now)
 *                            └── turn 4 … after a rollback to turn 2
 *
 * A turn is a snapshot with a number. Numbers only grow, in the order of taking, and are never given
 * again, whatever was removed or rolled back.
 */
export const SNAPSHOT_CAUSES = [
  /** A client asked for it. */
  'request',
  'turn',
  /** What was there before a rollback. */
  'rollback',
  /** What the children of a fork came from. Without a name it goes with the last of them. */
  'fork',
  /** What the sandbox was when it was archived. */
  'archive',
  /** It came in as an archive. */
  'import',
  /** What the sandbox was when it was moved to another platform. */
  'move',
] as const;

export const SnapshotSchema = z.object({
  id: SnapshotIdSchema,
  sandbox: SandboxIdSchema.describe('The sandbox that it was taken of, which may be gone.'),
  project: z.string(),
  parent: SnapshotIdSchema.nullable(),
  name: z
    .string()
    .nullable()
    .describe('Unique among the snapshots of its sandbox. A named one is never removed by retention.'),
  turn: z.int().nullable().describe('Its number, if it is a turn.'),
  cause: z.enum(SNAPSHOT_CAUSES),
  labels: LabelsSchema,
  memory: z.boolean().describe('Whether processes are in it as well as files.'),
  runtime: z.string().nullable().describe('The isolation whose memory it has.'),
  template: z.string(),
  quiet: z.boolean().describe('Whether commands that were running were waited for and had ended.'),
  archived: z
    .boolean()
    .describe('Whether it is in the archive store. It is fetched from there when a call needs it.'),
  bytes: z
    .int()
    .nullable()
    .describe(
      'What it takes on disk beyond what others have too, its memory included; counted when it was taken. Null if it is not known.',
    ),
  createdAtMs: z.int(),
});
export type Snapshot = z.infer<typeof SnapshotSchema>;

export const SnapshotNameSchema = z
  .string()
  .regex(
    /^[A-Za-z][A-Za-z0-9_.-]{0,62}$/,
    'must be 1 to 63 of letters, digits and _ . - and begin with a letter',
  )
  .refine((name) => name !== 'now' && !name.startsWith('snap_'), 'must not be "now" nor look like an id');

/** How a sandbox's snapshot is named in a request: its id, its name, a turn's number, or `now`. */
export const SnapshotRefSchema = z.union([z.string().min(1).max(80), z.int().min(1)]);
export type SnapshotRef = string | number;

export const TakeSnapshotSchema = z
  .object({
    name: SnapshotNameSchema.optional(),
    labels: LabelsSchema.default({}),
    memory: z
      .boolean()
      .default(false)
      .describe('Keeps the processes too. Rejected as `unsupported` where the isolation cannot.'),
  })
  .strict();
export type TakeSnapshot = z.input<typeof TakeSnapshotSchema>;

export const TakeTurnSchema = TakeSnapshotSchema.extend({
  waitMs: z
    .int()
    .min(0)
    .max(600_000)
    .default(10_000)
    .describe(
      'How long running commands are waited for. What still runs then is in the snapshot halfway, and `quiet` is false.',
    ),
}).strict();
export type TakeTurn = z.input<typeof TakeTurnSchema>;

/** Which turns are kept. Named snapshots, the newest turn, and those that a sandbox uses always are. */
export const RetentionSchema = z
  .object({
    keepLast: z.int().min(1).max(100_000).nullable().default(null),
    maxAgeMs: z.int().min(1000).nullable().default(null),
  })
  .strict();
export type Retention = z.infer<typeof RetentionSchema>;

export const ListSnapshotsSchema = z
  .object({
    sandbox: z.string().max(80).optional().describe('Those of this sandbox alone: its id or name.'),
    label: z
      .union([z.string(), z.array(z.string())])
      .optional()
      .describe('`key=value`, all of which must hold.'),
    limit: z.coerce.number().int().min(1).max(1000).default(100),
    cursor: z.string().max(256).optional(),
  })
  .strict();
export type ListSnapshots = z.infer<typeof ListSnapshotsSchema>;

/** Newest first. */
export const SnapshotPageSchema = z.object({
  snapshots: z.array(SnapshotSchema),
  nextCursor: z.string().nullable(),
});
export type SnapshotPage = z.infer<typeof SnapshotPageSchema>;

/** What an archive is called when it is taken in. */
export const ImportSnapshotSchema = z
  .object({
    name: SnapshotNameSchema.optional(),
    labels: LabelsSchema.default({}),
    platform: PlatformNameSchema.optional().describe(
      'Which of several platforms takes it in; the default one if absent.',
    ),
    allowForeignMemory: z
      .boolean()
      .default(false)
      .describe(
        'Takes in memory that this installation has not signed. For admins: it is given to the runtime as it is.',
      ),
  })
  .strict();
export type ImportSnapshot = z.input<typeof ImportSnapshotSchema>;

/**
 * Why the memory of an archive was left out: nobody has signed it, another installation has, or the runtime
 * that it is of is not here.
 */
export const MemoryDroppedSchema = z.enum(['unsigned', 'foreign', 'runtime']);
export type MemoryDropped = z.infer<typeof MemoryDroppedSchema>;

/** A snapshot that came in as an archive. */
export const ImportedSnapshotSchema = SnapshotSchema.extend({
  memoryDropped: MemoryDroppedSchema.nullable().describe(
    'Why it has files alone although the archive had memory; null if nothing was left out.',
  ),
});
export type ImportedSnapshot = z.infer<typeof ImportedSnapshotSchema>;

export const RollbackSchema = z
  .object({
    to: SnapshotRefSchema,
    memory: z.boolean().default(false),
    force: z
      .boolean()
      .default(false)
      .describe('Also while agent tools are running. Without it that is refused with `tools_in_flight`.'),
  })
  .strict();
export type Rollback = z.input<typeof RollbackSchema>;

export const ForkSchema = z
  .object({
    count: z.int().min(1).max(256).default(1),
    memory: z
      .boolean()
      .optional()
      .describe('Processes go on in the children. Absent: if the sandbox runs and its isolation can.'),
    namePrefix: z
      .string()
      .max(50)
      .optional()
      .describe("The children's names are this and `-1`, `-2` and so on."),
    labels: LabelsSchema.default({}),
    from: SnapshotRefSchema.optional().describe('A snapshot to fork from rather than what is there now.'),
  })
  .strict();
export type Fork = z.input<typeof ForkSchema>;

/** What two sides are compared: snapshots, turns, or `now`. */
export const CompareSchema = z
  .object({ from: SnapshotRefSchema, to: SnapshotRefSchema.default('now') })
  .strict();
export type Compare = z.input<typeof CompareSchema>;

const StandingSchema = z.object({ id: SandboxIdSchema, name: z.string().nullable(), state: z.string() });
/**
 * The snapshots of a sandbox and of those it was forked from or into, oldest first, and which sandboxes stand
 * where.
 */
export const SnapshotTreeSchema = z.object({
  start: z.array(StandingSchema).describe('The sandboxes that stand on no snapshot.'),
  nodes: z
    .array(z.object({ snapshot: SnapshotSchema, sandboxes: z.array(StandingSchema) }))
    .describe('`snapshot.parent` is the node above it; null or not among them is the start.'),
});
export type SnapshotTree = z.infer<typeof SnapshotTreeSchema>;

/**
 * What became of one path between two snapshots. Both `before` and `after` are there unless it was added or
 * removed.
 */
export const FileChangeSchema = z.object({
  path: z.string(),
  change: z.enum(['added', 'removed', 'modified', 'renamed']),
  from: z.string().optional().describe('Where a renamed file was. Content may have changed as well.'),
  type: z.enum(['file', 'directory', 'symlink', 'other']),
  before: z.object({ size: z.int(), mode: z.int(), uid: z.int(), gid: z.int() }).optional(),
  after: z.object({ size: z.int(), mode: z.int(), uid: z.int(), gid: z.int() }).optional(),
  content: z.boolean().describe('What a `modified` or `renamed` entry differs in.'),
  mode: z.boolean(),
  owner: z.boolean(),
});
export type FileChange = z.infer<typeof FileChangeSchema>;

/** How much has changed. Lines are counted in text files only. */
export const DiffStatSchema = z.object({
  files: z.array(
    z.object({
      path: z.string(),
      change: FileChangeSchema.shape.change,
      insertions: z.int(),
      deletions: z.int(),
      binary: z.boolean(),
    }),
  ),
  insertions: z.int(),
  deletions: z.int(),
});
export type DiffStat = z.infer<typeof DiffStatSchema>;
