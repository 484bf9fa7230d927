import { NetworkPolicySchema } from './egress.ts';
import { z } from 'zod';
import { CommandEndSchema, ExecRequestSchema, PtySizeSchema, SignalSchema } from './command.ts';
import { FileInfoSchema } from './file.ts';
import { CayEventSchema } from './event.ts';
import { KeyRoleSchema, KeySchema } from './key.ts';
import { ExposedPortSchema, PortSchema, PortVisibilitySchema, PublishedPortSchema } from './port.ts';
import { ProjectSchema } from './project.ts';
import { QuotaSchema, SomeQuotaSchema } from './quota.ts';
import { PAUSES } from './sandbox.ts';
import { AbsolutePathSchema, UserSchema, execText } from './spec.ts';
import { TemplateSchema } from './template.ts';

/** The bodies that the API takes and gives beside its nouns. */

export const VersionSchema = z.object({ name: z.literal('cay'), version: z.string(), api: z.literal('v1') });
export type Version = z.infer<typeof VersionSchema>;

export const TemplatePageSchema = z.object({ templates: z.array(TemplateSchema) });
export type TemplatePage = z.infer<typeof TemplatePageSchema>;

export const ReadinessSchema = z.object({
  ready: z.boolean(),
  checks: z.object({ records: z.boolean(), backend: z.boolean() }),
});
export type Readiness = z.infer<typeof ReadinessSchema>;

export const StopSandboxSchema = z
  .object({
    graceMs: z.int().min(0).max(600_000).optional(),
    force: z
      .boolean()
      .optional()
      .describe('Also if what it has changed cannot be written to buckets: that is lost.'),
  })
  .strict();
export const RemoveSandboxSchema = z
  .object({
    force: z
      .stringbool()
      .optional()
      .describe('Also if what it has changed cannot be written to buckets: that is lost.'),
  })
  .strict();
export type StopSandbox = z.infer<typeof StopSandboxSchema>;

export const PauseSandboxSchema = z
  .object({
    as: z.enum(PAUSES).optional().describe('Absent: hibernated where the isolation can, else frozen.'),
    waitMs: z
      .int()
      .min(0)
      .max(600_000)
      .default(0)
      .describe(
        'How long the pause waits for running commands to end. A command that still runs then is paused as it is. Calls that arrive meanwhile wait until the sandbox is paused, and then wake it again.',
      ),
  })
  .strict();
export type PauseSandbox = z.input<typeof PauseSandboxSchema>;

/** Keeps the sandbox from being idle for so long from now; 0 gives the lease back. */
export const LeaseSchema = z
  .object({
    forMs: z
      .int()
      .min(0)
      .max(30 * 24 * 3600 * 1000),
  })
  .strict();

export const CommandInfoSchema = z.object({
  id: z.string(),
  pid: z.int(),
  argv: z.array(z.string()),
  pty: z.boolean(),
  startedAtMs: z.int(),
  end: CommandEndSchema.optional(),
  outputBytes: z.int(),
  keptFrom: z.int(),
});

export const CommandListSchema = z.object({ commands: z.array(CommandInfoSchema) });
export type CommandList = z.infer<typeof CommandListSchema>;

/** What launching gives: the command, and where its port is reached if it exposes one. */
export const LaunchedSchema = z.object({
  command: CommandInfoSchema,
  existing: z.boolean(),
  port: ExposedPortSchema.optional(),
});
export type Launched = z.infer<typeof LaunchedSchema>;

export const SignalBodySchema = z.object({ signal: SignalSchema }).strict();

/** The first text message of a WebSocket for commands. */
export const SocketOpenSchema = z.union([
  z.object({ exec: ExecRequestSchema }).strict(),
  z.object({ attach: z.object({ id: z.string(), offset: z.int().min(0).default(0) }).strict() }).strict(),
]);
export type SocketOpen = z.input<typeof SocketOpenSchema>;

/** Every further text message. Binary ones are standard input. */
export const SocketMessageSchema = z.union([
  z.object({ resize: PtySizeSchema }).strict(),
  z.object({ signal: SignalSchema }).strict(),
  z.object({ closeStdin: z.literal(true) }).strict(),
]);
export type SocketMessage = z.infer<typeof SocketMessageSchema>;

/** The first byte of a binary message from the server. */
export const SOCKET_CHANNELS = { stdout: 1, stderr: 2, pty: 3 } as const;

const ModeSchema = z.int().min(0).max(0o7777);

export const FileListSchema = z.object({ files: z.array(FileInfoSchema), truncated: z.boolean() });
export type FileList = z.infer<typeof FileListSchema>;

/** `user` is as whom it is done; absent means the sandbox's own user. */
const onPath = { path: AbsolutePathSchema, user: UserSchema.optional() };
export const MakeDirectorySchema = z.object({ ...onPath, mode: ModeSchema.optional() }).strict();
export const MoveFileSchema = z
  .object({
    from: AbsolutePathSchema,
    to: AbsolutePathSchema,
    overwrite: z.boolean().default(false),
    user: UserSchema.optional(),
  })
  .strict();
export const ChangeModeSchema = z
  .object({ ...onPath, mode: ModeSchema, recursive: z.boolean().default(false) })
  .strict();
export const ChangeOwnerSchema = z
  .object({ ...onPath, owner: UserSchema, recursive: z.boolean().default(false) })
  .strict();
export const MakeSymlinkSchema = z.object({ ...onPath, target: execText(4096).min(1) }).strict();

/** Values are base64. In a change, `null` removes the attribute. */
const AttributeNameSchema = z.string().min(1).max(255);
export const AttributesSchema = z.object({ attributes: z.record(AttributeNameSchema, z.string()) });
export const ChangeAttributesSchema = z
  .object({
    attributes: z.record(
      AttributeNameSchema,
      z
        .base64()
        .max(128 * 1024)
        .nullable(),
    ),
  })
  .strict();

export const UnpackedSchema = z.object({ entries: z.int(), bytes: z.int() });
export type Unpacked = z.infer<typeof UnpackedSchema>;

export const ListeningPortSchema = z.object({ port: PortSchema, address: z.string() });
export const PortListSchema = z.object({
  listening: z.array(ListeningPortSchema),
  exposed: z.array(ExposedPortSchema),
  published: z.array(PublishedPortSchema),
});
export type PortList = z.infer<typeof PortListSchema>;
export const PortEventSchema = ListeningPortSchema.extend({ type: z.enum(['opened', 'closed']) });
export const ExposePortSchema = z.object({ visibility: PortVisibilitySchema.default('private') }).strict();

export const EventPageSchema = z.object({
  events: z.array(CayEventSchema),
  last: z.int().describe('For `after`, to read on.'),
});
export type EventPage = z.infer<typeof EventPageSchema>;

const NameSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9 _.@-]{0,99}$/, 'must be 1 to 100 of letters, digits, space and _ . @ -');

/** `project` is an id or a name; absent means the caller's own. */
export const CreateKeySchema = z
  .object({
    name: NameSchema,
    project: z.string().max(100).optional(),
    role: KeyRoleSchema.default('member'),
  })
  .strict();
export type CreateKey = z.input<typeof CreateKeySchema>;
/** The secret is shown this once. */
export const CreatedKeySchema = z.object({ key: KeySchema, secret: z.string() });
export type CreatedKey = z.infer<typeof CreatedKeySchema>;
export const KeyListSchema = z.object({ keys: z.array(KeySchema) });

export const CreateProjectSchema = z.object({ name: NameSchema, quota: QuotaSchema.prefault({}) }).strict();
export type CreateProject = z.input<typeof CreateProjectSchema>;
/** What is left out stays as it is. */
export const UpdateProjectSchema = z
  .object({ quota: SomeQuotaSchema.optional(), network: NetworkPolicySchema.nullable().optional() })
  .strict()
  .refine(
    ({ quota, network }) => quota !== undefined || network !== undefined,
    'must have "quota" or "network"',
  );
export type UpdateProject = z.infer<typeof UpdateProjectSchema>;
export const ProjectListSchema = z.object({ projects: z.array(ProjectSchema) });
