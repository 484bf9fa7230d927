import { z } from 'zod';
import { BucketSyncsSchema } from './bucket.ts';
import { NetworkPolicySchema } from './egress.ts';
import { SandboxIdSchema, SnapshotIdSchema } from './id.ts';
import { MountsSchema } from './mount.ts';
import { ExposedPortSchema, PortSchema, PortVisibilitySchema, PublishPortSchema } from './port.ts';
import { RetentionSchema, SnapshotSchema } from './snapshot.ts';
import { LabelsSchema, LimitsSchema, SandboxSpecSchema, SomeLimitsSchema } from './spec.ts';

/**
 * The states of a sandbox, as the control plane records them.
 *
 *     creating ──▶ active ◀──▶ stopped
 *        │         ▲ │ ▲          │
 *        │         │ │ └▶ paused ─┤
 *        ▼         ▼ ▼            │
 *     (gone)      failed ─────────┤
 *                    │            │
 *                    └─▶ destroying ──▶ (gone)
 *
 * A paused sandbox wakes by itself when a caller needs it; a stopped one has to be started. A fork of a
 * stopped sandbox is stopped, and a rollback to a snapshot with memory makes a stopped or failed sandbox
 * paused.
 */
export const SANDBOX_STATES = ['creating', 'active', 'paused', 'stopped', 'failed', 'destroying'] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

/** The pause levels, from the quickest to wake to the cheapest to keep. */
export const PAUSES = [
  /** The processes stand still in memory. */
  'frozen',
  /** Only files are kept, on a volume. A wake starts the sandbox again. */
  'suspended',
  /** The memory is an image on disk. There is no process. */
  'hibernated',
  /** Everything is in the archive store, and nothing on the machine. */
  'archived',
] as const;
export type Pause = (typeof PAUSES)[number];

/**
 * When an idle sandbox is paused or removed. A sandbox is idle while no command of a caller runs, no client
 * is attached, no preview is visited, it takes hardly any processor time, and it has no lease. Each time
 * counts from the last use; null means never.
 */
const IdleMsSchema = z
  .int()
  .min(1000)
  .max(10 * 365 * 24 * 3600 * 1000)
  .nullable()
  .default(null);
export const IdlePolicySchema = z
  .object({
    freezeAfterMs: IdleMsSchema,
    suspendAfterMs: IdleMsSchema,
    hibernateAfterMs: IdleMsSchema,
    archiveAfterMs: IdleMsSchema,
    destroyAfterMs: IdleMsSchema,
  })
  .strict();
export type IdlePolicy = z.infer<typeof IdlePolicySchema>;

/** The caller's own name for a sandbox, unique in its project. */
export const SandboxNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z 0-9 and -, and begin and end with a letter or digit',
  );

/** Sandboxes of a project that have a network in common reach each other by name. */
export const NetworksSchema = z
  .array(SandboxNameSchema)
  .max(8)
  .refine((names) => new Set(names).size === names.length, 'must not have a name twice')
  .describe('Named networks. Sandboxes of the project that have one in common reach each other by name.');

/** `pause` takes the cheapest level that keeps processes: hibernated if the runtime can, otherwise frozen. */
export const OnTimeoutSchema = z.enum(['pause', 'archive', 'stop', 'destroy']);
export type OnTimeout = z.infer<typeof OnTimeoutSchema>;
/** What happens to a sandbox that was running when the machine was restarted. */
export const OnBootSchema = z.enum(['stay', 'start']);
export type OnBoot = z.infer<typeof OnBootSchema>;
const TimeoutSchema = z
  .int()
  .min(1000)
  .max(365 * 24 * 3600 * 1000);

export const SandboxSchema = z.object({
  id: SandboxIdSchema,
  name: z.string().nullable(),
  project: z.string(),
  state: z.enum(SANDBOX_STATES),
  reason: z.string().optional().describe('Why it failed, or that a restart of the machine stopped it.'),
  message: z.string().optional(),
  backend: z.string(),
  platform: z.string().optional().describe('The platform that it is on, if the server has several.'),
  runtime: z.string().nullable().describe('The runtime that isolates it; null until it runs.'),
  template: z.string(),
  labels: LabelsSchema,
  limits: LimitsSchema,
  workdir: z.string(),
  user: z.string(),
  readOnlyRoot: z.boolean(),
  ports: z.array(ExposedPortSchema),
  networks: NetworksSchema,
  mounts: MountsSchema,
  incarnation: z.int(),
  uid: z
    .string()
    .nullable()
    .describe(
      "The platform's own identifier: the uid of the Job or Sandbox object on Kubernetes, the id of the container on Docker. Null before it has run.",
    ),
  createdAtMs: z.int(),
  startedAtMs: z.int().nullable().describe('When it became active the last time.'),
  timeoutMs: z.int().nullable().describe('How long after that `onTimeout` happens; null is never.'),
  onTimeout: OnTimeoutSchema,
  expiresAtMs: z.int().nullable(),
  pausedAs: z.enum(PAUSES).nullable().describe('The pause level; null unless it is paused.'),
  idle: IdlePolicySchema,
  leaseUntilMs: z.int().nullable().describe('Until when a lease keeps it from being idle.'),
  usedAtMs: z.int().nullable().describe('The last moment it was seen in use.'),
  retention: RetentionSchema,
  onBoot: OnBootSchema,
  base: SnapshotIdSchema.nullable().describe(
    'The snapshot that its files descend from: the last that was taken, rolled back to, or that it was made from.',
  ),
  turn: z.int().describe('The number of its newest turn; 0 before the first.'),
});
export type Sandbox = z.infer<typeof SandboxSchema>;

/** `kept` is a snapshot of the state before the rollback. A rollback to it undoes this one. */
export const RolledBackSchema = z.object({ sandbox: SandboxSchema, kept: SnapshotSchema.nullable() });
export type RolledBack = z.infer<typeof RolledBackSchema>;

/** The snapshot that a fork took, and the sandboxes that it made. */
export const ForkedSchema = z.object({ snapshot: SnapshotSchema, sandboxes: z.array(SandboxSchema) });
export type Forked = z.infer<typeof ForkedSchema>;

export const CreateSandboxSchema = SandboxSpecSchema.omit({ limits: true })
  .extend({
    name: SandboxNameSchema.optional(),
    getOrCreate: z
      .boolean()
      .default(false)
      .describe('With `name`: returns an existing sandbox of that name, and starts it if it is stopped.'),
    labels: LabelsSchema.default({}),
    limits: SomeLimitsSchema.default({}),
    timeoutMs: TimeoutSchema.nullable()
      .optional()
      .describe("Absent means the operator's default; null means never."),
    onTimeout: OnTimeoutSchema.default('pause'),
    idle: IdlePolicySchema.prefault({}),
    retention: RetentionSchema.prefault({}),
    onBoot: OnBootSchema.default('stay'),
    snapshot: SnapshotIdSchema.optional().describe(
      'Starts from this snapshot rather than from a template; with `memory`, its processes continue.',
    ),
    memory: z.boolean().optional(),
    imageCommand: z
      .boolean()
      .optional()
      .describe('Starts the own entrypoint and command of the image with the sandbox, in place of `cmd`.'),
    network: NetworkPolicySchema.optional().describe(
      "What it may reach outside. Absent means that of the snapshot, or the operator's default.",
    ),
    networks: NetworksSchema.default([]),
    buckets: BucketSyncsSchema.default([]).describe(
      'Buckets of the project that it has copies of: down before it starts, up at turns and before it ends.',
    ),
    ports: z
      .array(z.union([PortSchema, z.object({ port: PortSchema, visibility: PortVisibilitySchema }).strict()]))
      .max(64)
      .default([]),
    publish: z
      .array(PublishPortSchema)
      .max(16)
      .default([])
      .describe("Ports of the server's machine that lead to ports of the sandbox."),
  })
  .strict();
export type CreateSandbox = z.infer<typeof CreateSandboxSchema>;
export type CreateSandboxInput = z.input<typeof CreateSandboxSchema>;

export const UpdateSandboxSchema = z
  .object({
    labels: LabelsSchema.optional(),
    limits: SomeLimitsSchema.omit({ openFiles: true }).optional(),
    timeoutMs: TimeoutSchema.nullable().optional().describe('Counted from now.'),
    onTimeout: OnTimeoutSchema.optional(),
    idle: IdlePolicySchema.optional().describe('Replaces the whole policy.'),
    retention: RetentionSchema.optional(),
    onBoot: OnBootSchema.optional(),
    networks: NetworksSchema.optional(),
  })
  .strict();
export type UpdateSandbox = z.infer<typeof UpdateSandboxSchema>;

export const ListSandboxesSchema = z
  .object({
    label: z
      .union([z.string(), z.array(z.string())])
      .optional()
      .describe('`key=value`. All of them must match.'),
    state: z.enum(SANDBOX_STATES).optional(),
    limit: z.coerce.number().int().min(1).max(1000).default(100),
    cursor: z.string().max(256).optional(),
  })
  .strict();
export type ListSandboxes = z.infer<typeof ListSandboxesSchema>;

export const SandboxPageSchema = z.object({
  sandboxes: z.array(SandboxSchema),
  nextCursor: z.string().nullable(),
});
export type SandboxPage = z.infer<typeof SandboxPageSchema>;
