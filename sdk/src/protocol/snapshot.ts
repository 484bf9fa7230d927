import { z } from 'zod';
import { LabelsSchema, PlatformNameSchema } from './sandbox.ts';
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
  /** Somebody asked for it. */
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
] as const;

export const SnapshotSchema = z.object({
  id: SnapshotIdSchema,
  /** The sandbox that it was taken of, which may be gone. */
  sandbox: SandboxIdSchema,
  project: z.string(),
  parent: SnapshotIdSchema.nullable(),
  /** Unique among the snapshots of its sandbox. A named one is never removed by retention. */
  name: z.string().nullable(),
  /** Its number, if it is a turn. */
  turn: z.int().nullable(),
  cause: z.enum(SNAPSHOT_CAUSES),
  labels: LabelsSchema,
  /** Whether processes are in it as well as files. */
  memory: z.boolean(),
  /** The isolation whose memory it has. */
  runtime: z.string().nullable(),
  template: z.string(),
  /** Whether commands that were running were waited for and had ended. */
  quiet: z.boolean(),
  /** Whether it is in the archive store. It is fetched from there when somebody needs it. */
  archived: z.boolean(),
  /**
   * What it takes on disk beyond what others have too, its memory included; counted when it was taken. Null
   * if nobody knows.
   */
  bytes: z.int().nullable(),
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
    /** Keeps the processes too. Rejected as `unsupported` where the isolation cannot. */
    memory: z.boolean().default(false),
  })
  .strict();
export type TakeSnapshot = z.input<typeof TakeSnapshotSchema>;

export const TakeTurnSchema = TakeSnapshotSchema.extend({
  /**
   * How long running commands are waited for. What still runs then is in the snapshot halfway, and `quiet` is
   * false.
   */
  waitMs: z.int().min(0).max(600_000).default(10_000),
}).strict();
export type TakeTurn = z.input<typeof TakeTurnSchema>;

/** Which turns are kept. Named snapshots, the newest turn, and what a sandbox stands on always are. */
export const RetentionSchema = z
  .object({
    keepLast: z.int().min(1).max(100_000).nullable().default(null),
    maxAgeMs: z.int().min(1000).nullable().default(null),
  })
  .strict();
export type Retention = z.infer<typeof RetentionSchema>;

export const ListSnapshotsSchema = z
  .object({
    /** Those of this sandbox alone: its id or name. */
    sandbox: z.string().max(80).optional(),
    /** `key=value`, all of which must hold. */
    label: z.union([z.string(), z.array(z.string())]).optional(),
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
    /** Which of several platforms takes it in; the default one if absent. */
    platform: PlatformNameSchema.optional(),
    /**
     * Takes in memory that this installation has not signed. For admins: it is given to the runtime as it is.
     */
    allowForeignMemory: z.boolean().default(false),
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
  /** Why it has files alone although the archive had memory; null if nothing was left out. */
  memoryDropped: MemoryDroppedSchema.nullable(),
});
export type ImportedSnapshot = z.infer<typeof ImportedSnapshotSchema>;

export const RollbackSchema = z
  .object({ to: SnapshotRefSchema, memory: z.boolean().default(false) })
  .strict();
export type Rollback = z.input<typeof RollbackSchema>;

export const ForkSchema = z
  .object({
    count: z.int().min(1).max(256).default(1),
    /** Processes go on in the children. Absent: if the sandbox runs and its isolation can. */
    memory: z.boolean().optional(),
    /** The children's names are this and `-1`, `-2` and so on. */
    namePrefix: z.string().max(50).optional(),
    labels: LabelsSchema.default({}),
    /** A snapshot to fork from rather than what is there now. */
    from: SnapshotRefSchema.optional(),
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
  /** The sandboxes that stand on no snapshot. */
  start: z.array(StandingSchema),
  /** `snapshot.parent` is the node above it; null or not among them is the start. */
  nodes: z.array(z.object({ snapshot: SnapshotSchema, sandboxes: z.array(StandingSchema) })),
});
export type SnapshotTree = z.infer<typeof SnapshotTreeSchema>;

/**
 * A template is what sandboxes start from: one that the backend brings, or a project's own, which is a
 * snapshot.
 */
export const TemplateNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,62})?$/,
    'must be 1 to 63 of a-z 0-9 _ . - and begin and end with a letter or digit; a tag may follow after ":"',
  );
export const TemplateSchema = z.object({
  name: z.string(),
  /** Null for one that the backend brings. */
  snapshot: SnapshotIdSchema.nullable(),
  /** Whether sandboxes start with processes that run already. */
  memory: z.boolean(),
  createdAtMs: z.int().nullable(),
});
export type Template = z.infer<typeof TemplateSchema>;
export const SaveTemplateSchema = z
  .object({
    snapshot: SnapshotRefSchema,
    /** Whose snapshot it is, if that is a name or a number. */
    sandbox: z.string().max(80).optional(),
    /** Points a template of that name to this snapshot from now on. */
    replace: z.boolean().default(false),
  })
  .strict();
export type SaveTemplate = z.input<typeof SaveTemplateSchema>;

/**
 * What became of one path between two snapshots. Both `before` and `after` are there unless it was added or
 * removed.
 */
export const FileChangeSchema = z.object({
  path: z.string(),
  change: z.enum(['added', 'removed', 'modified', 'renamed']),
  /** Where a renamed file was. Content may have changed as well. */
  from: z.string().optional(),
  type: z.enum(['file', 'directory', 'symlink', 'other']),
  before: z.object({ size: z.int(), mode: z.int(), uid: z.int(), gid: z.int() }).optional(),
  after: z.object({ size: z.int(), mode: z.int(), uid: z.int(), gid: z.int() }).optional(),
  /** What a `modified` or `renamed` entry differs in. */
  content: z.boolean(),
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
