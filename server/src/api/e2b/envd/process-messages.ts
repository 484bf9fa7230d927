/** Messages of E2B's process service. Unknown fields are ignored. */
import type { CommandEnd } from '@cay/sdk/protocol';
import { EnvSchema, PtySizeSchema } from '@cay/sdk/protocol';
import { z } from 'zod';

const Argument = z
  .string()
  .max(128 * 1024)
  .refine((text) => !text.includes('\0'), 'must not contain a NUL character');
export const Selector = z.looseObject({ pid: z.int().min(0).optional(), tag: z.string().optional() });
export type Selector = z.infer<typeof Selector>;

const Pty = z.looseObject({
  size: z
    .looseObject({ cols: z.int(), rows: z.int() })
    .transform(({ cols, rows }) => ({ cols, rows }))
    .pipe(PtySizeSchema),
});

export const StartRequest = z.looseObject({
  process: z.looseObject({
    cmd: Argument.min(1),
    args: z.array(Argument).max(4095).default([]),
    envs: EnvSchema.default({}),
    cwd: z.string().max(4096).optional(),
  }),
  pty: Pty.optional(),
  tag: z.string().max(80).optional(),
  stdin: z.boolean().optional(),
});
export type StartRequest = z.infer<typeof StartRequest>;

export const ProcessRequest = z.looseObject({ process: Selector });
export const UpdateRequest = z.looseObject({ process: Selector, pty: Pty.optional() });
/** In JSON it is text, in protobuf it is bytes. */
const Bytes = z.union([z.instanceof(Buffer), z.base64().transform((text) => Buffer.from(text, 'base64'))]);
const Input = z.looseObject({ stdin: Bytes.optional(), pty: Bytes.optional() });
export const InputRequest = z.looseObject({ process: Selector, input: Input });
/** The first message of a stream names the process. */
export const StreamedInput = z.looseObject({
  start: z.looseObject({ process: Selector }).optional(),
  data: z.looseObject({ input: Input }).optional(),
});
const SIGNALS = {
  SIGNAL_SIGKILL: 'SIGKILL',
  SIGNAL_SIGTERM: 'SIGTERM',
  9: 'SIGKILL',
  15: 'SIGTERM',
} as const;
export const SignalRequest = z.looseObject({
  process: Selector,
  signal: z
    .union([z.literal(['SIGNAL_SIGKILL', 'SIGNAL_SIGTERM']), z.literal([9, 15])])
    .transform((name) => SIGNALS[name]),
});

/** Go's names of signals, which clients show. */
const SIGNAL_TEXT: Record<string, string> = {
  SIGHUP: 'hangup',
  SIGINT: 'interrupt',
  SIGQUIT: 'quit',
  SIGILL: 'illegal instruction',
  SIGTRAP: 'trace/breakpoint trap',
  SIGABRT: 'aborted',
  SIGBUS: 'bus error',
  SIGFPE: 'floating point exception',
  SIGKILL: 'killed',
  SIGUSR1: 'user defined signal 1',
  SIGSEGV: 'segmentation fault',
  SIGUSR2: 'user defined signal 2',
  SIGPIPE: 'broken pipe',
  SIGALRM: 'alarm clock',
  SIGTERM: 'terminated',
};

/** The end of a process; undefined for an end that has no such message. */
export function endEvent(
  end: CommandEnd,
): { exitCode: number; exited: boolean; status: string; error?: string } | undefined {
  switch (end.kind) {
    case 'exited': {
      const status = `exit status ${end.exitCode}`;
      return { exitCode: end.exitCode, exited: true, status, ...(end.exitCode !== 0 && { error: status }) };
    }
    case 'signalled':
      return killed(`signal: ${SIGNAL_TEXT[end.signal] ?? end.signal}`);
    case 'oom_killed':
      return killed('signal: killed', 'signal: killed (out of memory)');
    case 'timed_out':
    case 'lost':
      return undefined;
  }
}

function killed(status: string, error = status) {
  return { exitCode: -1, exited: false, status, error };
}
