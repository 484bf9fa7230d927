import { z } from 'zod';
import { EgressDenialSchema } from './egress.ts';
import { CommandIdSchema } from './id.ts';
import { AbsolutePathSchema, EnvSchema, UserSchema, execText } from './spec.ts';
import { PortSchema } from './port.ts';
import { SIGNALS, type Signal } from './signal.ts';

/**
 * A command is one process tree in a sandbox, with an id, an output log and exactly one end.
 *
 * It belongs to the sandbox, not to the client that started it: clients attach and detach as they like,
 * and read the log from any offset that is still kept. Offsets count the bytes of all output,
 * stdout and stderr together, in the order in which they were read.
 */
export const PtySizeSchema = z
  .object({ cols: z.int().min(1).max(4096), rows: z.int().min(1).max(4096) })
  .strict();
export type PtySize = z.infer<typeof PtySizeSchema>;

export const ExecRequestSchema = z
  .object({
    id: CommandIdSchema.optional().describe(
      'Chosen by the caller to make the start idempotent; made up if absent.',
    ),
    argv: z
      .array(execText(128 * 1024))
      .min(1)
      .max(4096)
      .optional()
      .describe('The program and its arguments. Either this or `shell`.'),
    shell: execText(128 * 1024)
      .min(1)
      .optional()
      .describe("A line for the sandbox's shell (bash, or sh where there is none). Either this or `argv`."),
    env: EnvSchema.optional().describe("Added to the sandbox's own environment."),
    workdir: AbsolutePathSchema.optional().describe("Defaults to the sandbox's workdir."),
    user: UserSchema.optional().describe("Defaults to the sandbox's user."),
    stdin: z
      .boolean()
      .optional()
      .describe('Opens a pipe for standard input; without it standard input is empty.'),
    pty: PtySizeSchema.optional().describe(
      'Runs the command on a terminal of this size. Output is then one channel, `pty`.',
    ),
    timeoutMs: z
      .int()
      .min(1)
      .max(2_147_483_647)
      .optional()
      .describe('After this the whole process tree is killed, daemons included.'),
    keepBytes: z
      .int()
      .min(4096)
      .max(64 * 1024 * 1024)
      .optional()
      .describe('How much output is kept for those who attach later.'),
    overflow: z
      .enum(['wait', 'drop'])
      .optional()
      .describe(
        'What happens when no client has read that much: the command waits, or the oldest output is dropped.',
      ),
  })
  .strict()
  .refine(
    (request) => (request.argv === undefined) !== (request.shell === undefined),
    'must have either "argv" or "shell"',
  );
export type ExecRequest = z.infer<typeof ExecRequestSchema>;

/** The five ends. */
export const CommandEndSchema = z.discriminatedUnion('kind', [
  /** It returned `exitCode`. */
  z.object({ kind: z.literal('exited'), exitCode: z.int().min(0).max(255) }),
  /** A signal ended it, for example `SIGSEGV`, or the `SIGTERM` that a client sent. */
  z.object({ kind: z.literal('signalled'), signal: z.string() }),
  /** It ran into its `timeoutMs` and was killed with all its descendants. */
  z.object({ kind: z.literal('timed_out') }),
  /** The sandbox was out of memory and this was the process to go. */
  z.object({ kind: z.literal('oom_killed') }),
  /** The sandbox stopped or was removed before it ended; its end is unknown. */
  z.object({ kind: z.literal('lost'), reason: z.string() }),
]);
export type CommandEnd = z.infer<typeof CommandEndSchema>;

export type OutputChannel = 'stdout' | 'stderr' | 'pty';

export interface CommandInfo {
  id: string;
  pid: number;
  argv: string[];
  pty: boolean;
  startedAtMs: number;
  /** Absent while the command runs. */
  end?: CommandEnd;
  /** Output so far, and the first offset that can still be read. */
  outputBytes: number;
  keptFrom: number;
}

const DeniedSchema = z
  .array(EgressDenialSchema)
  .optional()
  .describe('What the network policy denied while it ran. Absent if nothing.');

export const SignalSchema = z.enum(Object.keys(SIGNALS) as [Signal, ...Signal[]]);

/** The result of a command that was waited for. `truncated` says that output beyond the bound was dropped. */
export const ExecResultSchema = z.object({
  id: z.string(),
  end: CommandEndSchema,
  exitCode: z.int().describe('As a shell would show it: see `shellExitCode`.'),
  stdout: z.string(),
  stderr: z.string(),
  truncated: z.boolean(),
  durationMs: z.number(),
  denied: DeniedSchema,
});
export type ExecResult = z.infer<typeof ExecResultSchema>;

/** One event of a streamed command. `offset` counts bytes, also where `data` is text. */
export const ExecEventSchema = z.discriminatedUnion('type', [
  z.object({ type: z.literal('started'), id: z.string(), pid: z.int(), existing: z.boolean() }),
  z.object({ type: z.enum(['stdout', 'stderr', 'pty']), offset: z.int(), data: z.string() }),
  z.object({ type: z.literal('gap'), offset: z.int(), bytes: z.int() }),
  z.object({
    type: z.literal('end'),
    end: CommandEndSchema,
    exitCode: z.int(),
    denied: DeniedSchema,
  }),
  z.object({ type: z.literal('error'), error: z.object({ code: z.string(), message: z.string() }) }),
]);
export type ExecEvent = z.infer<typeof ExecEventSchema>;

/** How output is written in JSON: `base64` for output that is not text. */
export const OutputEncodingSchema = z.enum(['utf8', 'base64']);
export type OutputEncoding = z.infer<typeof OutputEncodingSchema>;

const MOST_WAITED_BYTES = 8 * 1024 * 1024;

/** The body that starts a command: the request to the guest, and input that is known beforehand. */
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
