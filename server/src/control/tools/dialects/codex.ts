/** The tools that Codex models know: `exec_command`, `write_stdin`, `apply_patch`, `view_image`. */
import { createHash } from 'node:crypto';
import { execText } from '@cay/sdk/protocol';
import { z } from 'zod';
import { bashInput, numberOf, readProgress, startInBackground, type Progress } from '../bash-tools.ts';
import { applyPatch, read } from '../guest-tools.ts';
import { COMMAND_TIMEOUT_MS, GUEST_TIMEOUT_MS } from '../limits.ts';
import type { RunningCall, ToolOutcome } from '../tool.ts';
import { dialectOf, type ToolParts } from './dialect.ts';

const Yield = (least: number, most: number) =>
  z.number().transform((ms) => Math.min(Math.max(Math.round(ms), least), most));
const MostTokens = z
  .int()
  .min(1)
  .max(1_000_000)
  .optional()
  .describe('How much of the output to return, in tokens. Default 10000');
/** A token is about so many bytes. */
const TOKEN_BYTES = 4;

const ExecCommand = z
  .object({
    cmd: execText(128 * 1024)
      .min(1)
      .describe('The command line'),
    workdir: execText(4096).min(1).optional().describe('Where it runs'),
    shell: execText(4096).min(1).optional().describe('The shell. Default bash'),
    login: z.boolean().optional().describe('Run the shell as a login shell'),
    tty: z.boolean().optional().describe('Run it on a terminal'),
    yield_time_ms: Yield(250, 30_000)
      .optional()
      .describe('How long to wait for output before answering. Default 10000'),
    max_output_tokens: MostTokens,
  })
  .strict();

const WriteStdin = z
  .object({
    session_id: z
      .int()
      .min(1)
      .max(2 ** 31)
      .describe('The session of exec_command'),
    chars: z
      .string()
      .max(256 * 1024)
      .optional()
      .describe('What to write; empty only reads'),
    yield_time_ms: Yield(250, 300_000)
      .optional()
      .describe('How long to wait for output. Default 250, or 5000 without chars'),
    max_output_tokens: MostTokens,
  })
  .strict();

const commandOf = (session: number) => `exec-${session}`;
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** Where the next read of a session begins. Sessions of an earlier server begin at their last output. */
const positions = new Map<string, number>();
const MOST_POSITIONS = 10_000;

function remember(sandbox: string, id: string, offset: number): void {
  const key = `${sandbox} ${id}`;
  positions.delete(key);
  positions.set(key, offset);
  if (positions.size > MOST_POSITIONS) positions.delete(positions.keys().next().value!);
}

function withTokens(running: RunningCall, tokens: number | undefined): RunningCall {
  const maxOutputBytes = Math.min((tokens ?? 10_000) * TOKEN_BYTES, 1024 * 1024);
  return { ...running, call: { ...running.call, maxOutputBytes } };
}

function answer(session: number, { output, exitCode, nextOffset }: Progress, startedAt: number): ToolOutcome {
  const seconds = (performance.now() - startedAt) / 1000;
  const omittedBytes = output.omittedBytes;
  const tokens = Math.ceil(output.bytes / TOKEN_BYTES);
  const chunk = createHash('sha256').update(`${session} ${nextOffset}`).digest('hex').slice(0, 6);
  const state =
    exitCode === undefined
      ? `Process running with session ID ${session}`
      : `Process exited with code ${exitCode}`;
  const lines = [
    `Chunk ID: ${chunk}`,
    `Wall time: ${seconds.toFixed(4)} seconds`,
    state,
    `Original token count: ${tokens}`,
    'Output:',
    output.text(),
  ];
  return {
    content: [{ type: 'text', text: lines.join('\n') }],
    structured: {
      chunk_id: chunk,
      wall_time_seconds: seconds,
      original_token_count: tokens,
      ...(exitCode === undefined ? { session_id: session } : { exit_code: exitCode }),
    },
    exitCode: exitCode ?? null,
    ...(omittedBytes > 0 && { truncated: { omittedBytes } }),
  };
}

async function execCommand(
  parts: ToolParts,
  running: RunningCall,
  input: z.output<typeof ExecCommand>,
): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const session = numberOf(running);
  const workdir = input.workdir?.startsWith('/')
    ? input.workdir
    : input.workdir === undefined
      ? running.workdir
      : `${running.workdir}/${input.workdir}`;
  const shell =
    input.shell === undefined && !input.login
      ? input.cmd
      : `exec ${quoted(input.shell ?? 'bash')} ${input.login ? '-lc' : '-c'} ${quoted(input.cmd)}`;
  const request = { shell, workdir, tty: input.tty ?? false };
  const id = await startInBackground(parts, running, request, commandOf(session));
  const progress = await readProgress(parts, withTokens(running, input.max_output_tokens), {
    id,
    offset: 0,
    waitMs: input.yield_time_ms ?? 10_000,
    untilEnd: true,
  });
  remember(running.sandbox, id, progress.nextOffset);
  return answer(session, progress, startedAt);
}

async function writeStdin(
  parts: ToolParts,
  running: RunningCall,
  input: z.output<typeof WriteStdin>,
): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const id = commandOf(input.session_id);
  const { chars = '' } = input;
  const known = positions.get(`${running.sandbox} ${id}`);
  const offset = known ?? (await parts.commands.get(running.principal, running.sandbox, id)).outputBytes;
  if (chars !== '') await bashInput(parts, running, { bash_id: id, data: chars });
  const progress = await readProgress(parts, withTokens(running, input.max_output_tokens), {
    id,
    offset,
    waitMs: input.yield_time_ms ?? (chars === '' ? 5000 : 250),
  });
  remember(running.sandbox, id, progress.nextOffset);
  return answer(input.session_id, progress, startedAt);
}

export const CODEX = dialectOf([
  {
    name: 'exec_command',
    title: 'Run a command',
    description:
      'Runs a command and returns its output, or a session ID to read on and write to while it runs.',
    schema: ExecCommand,
    tier: 2,
    effect: 'commands',
    timeoutMs: COMMAND_TIMEOUT_MS,
    run: execCommand as never,
  },
  {
    name: 'write_stdin',
    title: 'Write to a session',
    description: 'Writes characters to a running session, and returns its recent output.',
    schema: WriteStdin,
    tier: 1,
    effect: 'changes',
    timeoutMs: 310_000,
    run: writeStdin as never,
  },
  {
    name: 'apply_patch',
    title: 'Apply a patch',
    description: 'Edits files by a patch from "*** Begin Patch" to "*** End Patch".',
    schema: z
      .object({
        input: z
          .string()
          .min(1)
          .max(900 * 1024)
          .describe('The patch'),
      })
      .strict(),
    tier: 1,
    effect: 'changes',
    timeoutMs: GUEST_TIMEOUT_MS,
    run: ((parts: ToolParts, running: RunningCall, { input }: { input: string }) =>
      applyPatch(parts, running, { patch: input })) as never,
  },
  {
    name: 'view_image',
    title: 'View an image',
    description: 'Shows an image file of the sandbox.',
    schema: z.object({ path: execText(4096).min(1).describe('The path of the image') }).strict(),
    tier: 1,
    effect: 'reads',
    timeoutMs: GUEST_TIMEOUT_MS,
    run: ((parts: ToolParts, running: RunningCall, { path }: { path: string }) =>
      read(parts, running, { file_path: path })) as never,
  },
]);
