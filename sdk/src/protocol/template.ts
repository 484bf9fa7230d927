import { z } from 'zod';
import { NetworkPolicySchema } from './egress.ts';
import { SnapshotIdSchema } from './id.ts';
import { SnapshotRefSchema } from './snapshot.ts';
import { SomeLimitsSchema, execText } from './spec.ts';

/** How a template wants to be run, as an image says it. What is empty was not said. */
export const TemplateConfigSchema = z.object({
  env: z.record(z.string(), z.string()),
  user: z.string().describe('Empty: `user`.'),
  workdir: z.string(),
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  shell: z.array(z.string()).describe('What runs command lines of a build. Empty: `/bin/sh -c`.'),
  exposed: z.array(z.string()).describe('Ports with their protocol, such as `8080/tcp`.'),
  volumes: z.array(z.string()),
  labels: z.record(z.string(), z.string()),
  stopSignal: z.string(),
  healthcheck: z
    .object({ test: z.array(z.string()), options: z.record(z.string(), z.string()) })
    .nullable()
    .describe('Kept for those who export the template; nothing runs it here.'),
  onBuild: z.array(z.string()).describe('Instructions for builds that begin with this template.'),
});
export type TemplateConfig = z.infer<typeof TemplateConfigSchema>;

export const NO_TEMPLATE_CONFIG: TemplateConfig = {
  env: {},
  user: '',
  workdir: '',
  entrypoint: [],
  cmd: [],
  shell: [],
  exposed: [],
  volumes: [],
  labels: {},
  stopSignal: '',
  healthcheck: null,
  onBuild: [],
};

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
  snapshot: SnapshotIdSchema.nullable().describe('Null for one that the backend brings.'),
  memory: z.boolean().describe('Whether sandboxes start with processes that run already.'),
  createdAtMs: z.int().nullable(),
  network: NetworkPolicySchema.nullable().describe(
    'What sandboxes made from it reach, and reach at most. Null means no policy of its own.',
  ),
  config: TemplateConfigSchema.optional().describe(
    'How it wants to be run, if it was built from a Dockerfile.',
  ),
});
export type Template = z.infer<typeof TemplateSchema>;
export const SaveTemplateSchema = z
  .object({
    snapshot: SnapshotRefSchema,
    sandbox: z.string().max(80).optional().describe('Whose snapshot it is, if that is a name or a number.'),
    replace: z
      .boolean()
      .default(false)
      .describe('Points a template of that name to this snapshot from now on.'),
    network: NetworkPolicySchema.optional().describe(
      'The policy of sandboxes made from it that ask for none, and the most that any of them reaches.',
    ),
    config: TemplateConfigSchema.optional(),
  })
  .strict();
export type SaveTemplate = z.input<typeof SaveTemplateSchema>;

/** When the start command of a template is ready. */
export const ReadinessCheckSchema = z.union([
  z.object({ port: z.int().min(1).max(65_535).describe('A program listens on it.') }).strict(),
  z
    .object({
      http: z
        .url({ protocol: /^http$/ })
        .max(2048)
        .describe('`http://localhost:PORT/PATH` answers with a status below 400.'),
    })
    .strict(),
  z.object({ file: execText(4096).min(1).describe('It exists.') }).strict(),
  z
    .object({
      command: execText(128 * 1024)
        .min(1)
        .describe('A command line that exits with 0.'),
    })
    .strict(),
]);
export type ReadinessCheck = z.infer<typeof ReadinessCheckSchema>;

const MAX_DOCKERFILE = 1024 * 1024;
const Digest = z.string().regex(/^[0-9a-f]{64}$/, 'must be a SHA-256 digest in hex');
const ArgName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, 'must be a name of letters, digits and _');
const SecretId = z.string().regex(/^[A-Za-z0-9_.-]{1,128}$/, 'must be 1 to 128 of letters, digits and _ . -');

/** A build of a template from a Dockerfile. */
export const BuildTemplateSchema = z
  .object({
    name: TemplateNameSchema.describe('What the template is called; a tag may follow after ":".'),
    tags: z
      .array(z.string().regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/))
      .max(50)
      .default([])
      .describe('Further tags that lead to it.'),
    dockerfile: z.string().min(1).max(MAX_DOCKERFILE),
    context: Digest.optional().describe('The files for COPY and ADD: the digest that their upload gave.'),
    args: z.record(ArgName, z.string().max(128 * 1024)).default({}),
    secrets: z
      .record(SecretId, z.string().max(512 * 1024))
      .default({})
      .describe('For `RUN --mount=type=secret`. Kept in memory while it is built, and masked in its log.'),
    target: z.string().min(1).max(128).optional().describe('The stage to build. Default: the last.'),
    noCache: z.boolean().default(false).describe('Runs every step again.'),
    start: execText(128 * 1024)
      .min(1)
      .optional()
      .describe(
        'A command line that runs in every sandbox of the template, from its memory where that can be kept.',
      ),
    ready: ReadinessCheckSchema.optional().describe('When the start command is ready.'),
    limits: SomeLimitsSchema.optional(),
    network: NetworkPolicySchema.optional().describe('What the steps may reach. Default: as every sandbox.'),
    timeoutMs: z
      .int()
      .min(1000)
      .optional()
      .describe('How long it may take. Default and most: as the operator says.'),
  })
  .strict();
export type BuildTemplate = z.input<typeof BuildTemplateSchema>;

export const BuildFailureSchema = z.object({
  message: z.string(),
  hint: z.string().optional().describe('What to do about it.'),
  step: z.int().describe('0 is the base, 1 the first step, one more than there are steps what follows.'),
  steps: z.int(),
  command: z.string().optional(),
  exitCode: z.int().optional(),
  unknownUser: z.string().optional(),
});

export const TemplateBuildSchema = z.object({
  id: z.string(),
  template: z.string(),
  names: z.array(z.string()).describe('The names that lead to it when it is ready.'),
  state: z.enum(['waiting', 'building', 'ready', 'failed']),
  snapshot: SnapshotIdSchema.nullable(),
  failure: BuildFailureSchema.nullable(),
  createdAtMs: z.int(),
  endedAtMs: z.int().nullable(),
});
export type TemplateBuild = z.infer<typeof TemplateBuildSchema>;

export const TemplateBuildPageSchema = z.object({ builds: z.array(TemplateBuildSchema) });
export type TemplateBuildPage = z.infer<typeof TemplateBuildPageSchema>;

export const BuildLogEntrySchema = z.object({
  atMs: z.int(),
  level: z.enum(['debug', 'info', 'warn', 'error']),
  message: z.string(),
  step: z.literal(true).optional().describe('The message says which step begins; others are its output.'),
});
export type BuildLogEntry = z.infer<typeof BuildLogEntrySchema>;

/** A value of the log of a build: an entry or, as the last, the build as it ended. */
export const BuildLineSchema = z.object({
  log: BuildLogEntrySchema.optional(),
  build: TemplateBuildSchema.optional(),
});
export type BuildLine = z.infer<typeof BuildLineSchema>;

export const BuildContextSchema = z.object({
  digest: Digest,
  bytes: z.int(),
});
export type BuildContextInfo = z.infer<typeof BuildContextSchema>;
