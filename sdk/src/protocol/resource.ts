import { z } from 'zod';
import { CommandEndSchema, ExecRequestSchema } from './command.ts';
import { LabelsSchema, LimitsSchema, SandboxSpecSchema, SomeLimitsSchema } from './sandbox.ts';
import { SandboxIdSchema, SnapshotIdSchema } from './id.ts';
import { RetentionSchema, SnapshotSchema } from './snapshot.ts';

/**
 * What the API shows and takes. A Sandbox is the control plane's view: what was asked for, what
 * became of it, and until when it may live.
 *
 *     creating ──▶ active ◀──▶ stopped
 *        │         ▲ │ ▲          │
 *        │         │ │ └▶ paused ─┤
 *        ▼         ▼ ▼            │
 *     (gone)      failed ─────────┤
 *                    │            │
 *                    └─▶ destroying ──▶ (gone)
 *
 * A paused sandbox wakes by itself when somebody needs it; a stopped one has to be started. Children of one
 * that is stopped are stopped as soon as they are made, and going back to a snapshot with memory makes a
 * stopped or failed one paused.
 */
export const SANDBOX_STATES = ['creating', 'active', 'paused', 'stopped', 'failed', 'destroying'] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

/** The rungs of the ladder, from the quickest to wake to the cheapest to keep. */
export const PAUSES = [
  /** In memory, and not running. */
  'frozen',
  /** Only files are kept, where the platform keeps them apart: waking it starts it anew. */
  'suspended',
  /** Memory is on disk; no process exists. */
  'hibernated',
  /** Everything is in the archive store; nothing is left here. */
  'archived',
] as const;
export type Pause = (typeof PAUSES)[number];

/**
 * What becomes of a sandbox that nobody uses: no command runs, no client is attached, no preview traffic
 * comes, it takes no processor time worth the name, and no lease holds it. Each is counted from when it was
 * last used; null is never.
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

/** A name is the caller's own handle on a sandbox, unique in its project. */
export const SandboxNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z 0-9 and -, and begin and end with a letter or digit',
  );

export const PortVisibilitySchema = z.enum(['private', 'public']);
export const PortSchema = z.int().min(1).max(65_535);

/** A port that may be reached from outside through the server. `private` needs the preview token. */
export const ExposedPortSchema = z.object({
  port: PortSchema,
  visibility: PortVisibilitySchema,
  url: z.string(),
  openUrl: z
    .string()
    .describe(
      'Opens in a browser as it is. Of a private port it has the token in its query, which the server replaces with a cookie: share it only with those who may see the port.',
    ),
  token: z
    .string()
    .optional()
    .describe("Given to those who may see the sandbox; never to the preview's visitors."),
});
export type ExposedPort = z.infer<typeof ExposedPortSchema>;

/**
 * `pause` takes the cheapest rung that wakes with everything: hibernated where the isolation can, else
 * frozen.
 */
export const OnTimeoutSchema = z.enum(['pause', 'archive', 'stop', 'destroy']);
export type OnTimeout = z.infer<typeof OnTimeoutSchema>;
/** What becomes of a sandbox that was running when the machine was restarted. */
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
  reason: z
    .string()
    .optional()
    .describe("Why it failed, or that it was the machine's restart that stopped it."),
  message: z.string().optional(),
  backend: z.string(),
  platform: z.string().optional().describe('Which platform it is on, where there are several.'),
  runtime: z.string().nullable().describe('The isolation that it has; null until it runs.'),
  template: z.string(),
  labels: LabelsSchema,
  limits: LimitsSchema,
  workdir: z.string(),
  user: z.string(),
  readOnlyRoot: z.boolean(),
  ports: z.array(ExposedPortSchema),
  incarnation: z.int(),
  uid: z
    .string()
    .nullable()
    .describe(
      'What the ground that it runs on calls it: the uid of its Job or Sandbox object on Kubernetes, the id of its container on Docker. Null before it has run.',
    ),
  createdAtMs: z.int(),
  startedAtMs: z.int().nullable().describe('When it became active the last time.'),
  timeoutMs: z.int().nullable().describe('How long after that `onTimeout` happens; null is never.'),
  onTimeout: OnTimeoutSchema,
  expiresAtMs: z.int().nullable(),
  pausedAs: z.enum(PAUSES).nullable().describe('How it is paused; null unless it is.'),
  idle: IdlePolicySchema,
  leaseUntilMs: z.int().nullable().describe('Until when a lease keeps it from being idle.'),
  usedAtMs: z.int().nullable().describe('The last moment it was seen in use.'),
  retention: RetentionSchema,
  onBoot: OnBootSchema,
  base: SnapshotIdSchema.nullable().describe(
    'The snapshot that its files go back to: the last one taken, rolled back to, or come from.',
  ),
  turn: z.int().describe('The number of its newest turn; 0 before the first.'),
});
export type Sandbox = z.infer<typeof SandboxSchema>;

/** What a rollback gives. `kept` is what was there before; going back to it undoes the rollback. */
export const RolledBackSchema = z.object({ sandbox: SandboxSchema, kept: SnapshotSchema.nullable() });
export type RolledBack = z.infer<typeof RolledBackSchema>;

/** What a fork gives: the one capture, and the sandboxes that came from it. */
export const ForkedSchema = z.object({ snapshot: SnapshotSchema, sandboxes: z.array(SandboxSchema) });
export type Forked = z.infer<typeof ForkedSchema>;

export const CreateSandboxSchema = SandboxSpecSchema.omit({ limits: true })
  .extend({
    name: SandboxNameSchema.optional(),
    getOrCreate: z
      .boolean()
      .default(false)
      .describe(
        'With a name: an existing sandbox of that name is the answer, started again if it was stopped.',
      ),
    labels: LabelsSchema.default({}),
    limits: SomeLimitsSchema.default({}),
    timeoutMs: TimeoutSchema.nullable()
      .optional()
      .describe(
        "Absent is the operator's default, which is never unless the server says otherwise; null is never.",
      ),
    onTimeout: OnTimeoutSchema.default('pause'),
    idle: IdlePolicySchema.prefault({}),
    retention: RetentionSchema.prefault({}),
    onBoot: OnBootSchema.default('stay'),
    snapshot: SnapshotIdSchema.optional().describe(
      'Starts from this snapshot rather than from a template; with `memory`, with its processes running.',
    ),
    memory: z.boolean().optional(),
    ports: z
      .array(z.union([PortSchema, z.object({ port: PortSchema, visibility: PortVisibilitySchema }).strict()]))
      .max(64)
      .default([]),
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
  })
  .strict();
export type UpdateSandbox = z.infer<typeof UpdateSandboxSchema>;

export const ListSandboxesSchema = z
  .object({
    label: z
      .union([z.string(), z.array(z.string())])
      .optional()
      .describe('`key=value`, all of which must hold.'),
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

/** What waiting for a command gives. Output beyond the bound is thrown away, and said so. */
export const ExecResultSchema = z.object({
  id: z.string(),
  end: CommandEndSchema,
  exitCode: z.int().describe('As a shell would show it: see `shellExitCode`.'),
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.boolean(),
  durationMs: z.number(),
});
export type ExecResult = z.infer<typeof ExecResultSchema>;

/** One line or event of a streamed command. `offset` counts bytes, also where `data` is text. */
export const ExecEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('started'), id: z.string(), pid: z.int(), existing: z.boolean() }),
  z.object({ type: z.enum(['stdout', 'stderr', 'pty']), offset: z.int(), data: z.string() }),
  z.object({ type: z.literal('gap'), offset: z.int(), bytes: z.int() }),
  z.object({ type: z.literal('end'), end: CommandEndSchema, exitCode: z.int() }),
  z.object({ type: z.literal('error'), error: z.object({ code: z.string(), message: z.string() }) }),
]);
export type ExecEvent = z.infer<typeof ExecEventSchema>;

/** `base64` where output is not text. */
export const OutputEncodingSchema = z.enum(['utf8', 'base64']);
export type OutputEncoding = z.infer<typeof OutputEncodingSchema>;

const MOST_WAITED_BYTES = 8 * 1024 * 1024;

/** Starting a command by HTTP: what the guest takes, and input that is known beforehand. */
export const ExecBodySchema = ExecRequestSchema.safeExtend({
  input: z
    .string()
    .max(8 * 1024 * 1024)
    .optional()
    .describe('Text for standard input, which is then closed.'),
  encoding: OutputEncodingSchema.optional(),
  maxOutputBytes: z
    .int()
    .min(1024)
    .max(
      MOST_WAITED_BYTES,
      `it is at most ${MOST_WAITED_BYTES}: stream the output, or leave the command running and read it, for more`,
    )
    .optional()
    .describe(
      'How much output an answer that waits may hold, both streams together. Default 1 MiB, at most 8 MiB: a stream has no such bound.',
    ),
  expose: PortSchema.optional().describe('Makes this port reachable when the command is launched.'),
});
export type ExecBody = z.infer<typeof ExecBodySchema>;

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

const Count = z.int().min(0).nullable();

/** What a project may take in all. Null is the operator's default, which may be no limit. */
const QUOTAS = {
  /** Of any state. */
  sandboxes: Count,
  cpus: z
    .number()
    .min(0)
    .nullable()
    .describe('The sum of the limits of those that run; a paused one keeps what it has in memory.'),
  memoryBytes: Count,
  pids: Count,
  /** The sum of the limits of all sandboxes. */
  diskBytes: Count,
  snapshots: Count,
  /** Files and memory of snapshots, and the memory of sandboxes that hibernate. */
  snapshotBytes: Count,
  /** Files for builds, uploads that are not finished, and archives on their way in. */
  uploadBytes: Count,
  /** Output of commands that is kept on the server. */
  logBytes: Count,
  webhooks: Count,
  /** Names of templates, each tag among them. */
  templates: Count,
  /** Keys of calls and commands that can be repeated, each for seven days. */
  idempotencyKeys: Count,
  /** Connections to previews that are open at once. */
  previewConnections: Count,
};

export const QuotaSchema = z
  .object({
    sandboxes: QUOTAS.sandboxes.default(null),
    cpus: QUOTAS.cpus.default(null),
    memoryBytes: QUOTAS.memoryBytes.default(null),
    pids: QUOTAS.pids.default(null),
    diskBytes: QUOTAS.diskBytes.default(null),
    snapshots: QUOTAS.snapshots.default(null),
    snapshotBytes: QUOTAS.snapshotBytes.default(null),
    uploadBytes: QUOTAS.uploadBytes.default(null),
    logBytes: QUOTAS.logBytes.default(null),
    webhooks: QUOTAS.webhooks.default(null),
    templates: QUOTAS.templates.default(null),
    idempotencyKeys: QUOTAS.idempotencyKeys.default(null),
    previewConnections: QUOTAS.previewConnections.default(null),
  })
  .strict();
/** Those that are given; what is absent stays as it is. */
export const SomeQuotaSchema = z.object(QUOTAS).partial().strict();
export type SomeQuota = z.infer<typeof SomeQuotaSchema>;
export type Quota = z.infer<typeof QuotaSchema>;

export const ProjectSchema = z.object({
  id: z.string(),
  name: z.string(),
  quota: QuotaSchema.describe('As it was set.'),
  effectiveQuota: QuotaSchema.describe(
    "What holds: with the operator's defaults, and within the operator's maxima. Null is no limit.",
  ),
  createdAtMs: z.int(),
});
export type Project = z.infer<typeof ProjectSchema>;

export const KeyRoleSchema = z.enum(['admin', 'member', 'metrics']);

/** What a project has of each quota, and how much it may have. A limit of null is none. */
export const ProjectUsageSchema = z.record(
  z.string(),
  z.object({ used: z.number(), limit: z.number().nullable() }),
);
export type ProjectUsage = z.infer<typeof ProjectUsageSchema>;

export const KeySchema = z.object({
  id: z.string(),
  name: z.string(),
  project: z.string(),
  role: KeyRoleSchema.describe(
    'An admin may make projects and keys. `metrics` may read `/metrics` and nothing else.',
  ),
  hint: z.string().describe("The key's first characters, to recognise it by."),
  createdAtMs: z.int(),
  lastUsedAtMs: z.int().nullable(),
});
export type Key = z.infer<typeof KeySchema>;
