import { z } from 'zod';
import { MountsSchema } from './mount.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
const GiB = 1024 * MiB;

const LIMITS = {
  cpus: z.number().min(0.05).max(1024).nullable().describe("Cores; fractions are shares of one core's time."),
  memoryBytes: z
    .int()
    .min(16 * MiB)
    .max(64 * 1024 * GiB)
    .nullable()
    .describe(
      "The sandbox's processes together. The kernel, or the guest under gVisor, ends the greediest one beyond it.",
    ),
  diskBytes: z
    .int()
    .min(16 * MiB)
    .max(1024 * 1024 * GiB)
    .nullable()
    .describe("Everything written to the sandbox's own disk."),
  pids: z.int().min(8).max(4_000_000).nullable().describe('Processes and threads alive at once.'),
  openFiles: z.int().min(64).max(1_048_576).describe('Open files of one process.'),
};

/**
 * What a sandbox may use. Each limit is enforced by the backend or refused by its `validate`;
 * none is ever taken and ignored. `null` means no limit other than the machine's own.
 */
export const LimitsSchema = z
  .object({
    cpus: LIMITS.cpus.default(2),
    memoryBytes: LIMITS.memoryBytes.default(2 * GiB),
    diskBytes: LIMITS.diskBytes.default(10 * GiB),
    pids: LIMITS.pids.default(2048),
    openFiles: LIMITS.openFiles.default(65_536),
  })
  .strict();

/**
 * Only the limits of the request: what is absent stays absent, where `LimitsSchema` fills in a default.
 */
export const SomeLimitsSchema = z.object(LIMITS).partial().strict();
export type Limits = z.infer<typeof LimitsSchema>;

const NUL = '\u0000';
/** Text that may travel through `execve`: no NUL byte, and not endless. */
export const execText = (max: number) =>
  z
    .string()
    .max(max)
    .refine((text) => !text.includes(NUL), 'must not contain a NUL character');

export const EnvSchema = z
  .record(
    z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, 'must be a name such as PATH: letters, digits and _'),
    execText(128 * KiB),
  )
  .refine((env) => Object.keys(env).length <= 1024, 'must have at most 1024 entries');

export const AbsolutePathSchema = execText(4096).regex(/^\//, 'must be an absolute path');

/** `name`, `uid`, `name:group` or `uid:gid`, as `docker run --user` has it. */
export const UserSchema = z
  .string()
  .regex(
    /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$/,
    'must be a user such as "user", "root", "1000" or "1000:1000"',
  );

export const LabelsSchema = z
  .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_./-]{0,127}$/), z.string().max(1024))
  .refine((labels) => Object.keys(labels).length <= 64, 'must have at most 64 entries');

export const PlatformNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
    'must be 1 to 63 of a-z 0-9 and -, and begin and end with a letter or digit',
  );

/** Everything about a sandbox that a backend has to know in order to make it. */
export const SandboxSpecSchema = z
  .object({
    template: z
      .string()
      .min(1)
      .max(512)
      .default('base')
      .describe('The root filesystem to start from: `base`, or a template or image that the backend knows.'),
    runtime: z
      .string()
      .max(64)
      .optional()
      .describe(
        "The isolation, one of the `runtimes` in the server's capabilities, such as `runsc`. Absent means the strongest that is allowed.",
      ),
    platform: PlatformNameSchema.optional().describe(
      'Which of several platforms makes it, where there are several. Absent means that labels choose, or the default.',
    ),
    cmd: z
      .array(execText(128 * KiB))
      .min(1)
      .max(4096)
      .optional()
      .describe(
        'A command that is started with the sandbox, as `user` in `workdir`. Its end does not end the sandbox.',
      ),
    env: EnvSchema.default({}),
    workdir: AbsolutePathSchema.default('/home/user'),
    user: UserSchema.default('user'),
    limits: LimitsSchema.prefault({}),
    readOnlyRoot: z
      .boolean()
      .default(false)
      .describe('Only `/tmp`, `/run`, `/dev/shm` and mounts can be written.'),
    mounts: MountsSchema.optional().describe(
      'Volumes, memory and directories of the host that it has beside its own disk. With a snapshot, absent means those of the snapshot.',
    ),
  })
  .strict();
export type SandboxSpec = z.infer<typeof SandboxSpecSchema>;
export type SandboxSpecInput = z.input<typeof SandboxSpecSchema>;
