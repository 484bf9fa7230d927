/** `bash` and what belongs to commands in the background. */
import { createHash, randomInt } from 'node:crypto';
import { CayError, shellExitCode, type ToolInput } from '@cay/sdk/protocol';
import { HeadAndTail } from './head-and-tail.ts';
import { BACKGROUND_TIMEOUT_MS, DEFAULT_OUTPUT_BYTES } from './limits.ts';
import { keyOf, outcomeOf, runCommand, type CommandParts } from './run-command.ts';
import type { RunningCall, ToolOutcome } from './tool.ts';

/** How long output may pause before what came is an answer. */
const QUIET_MS = 40;

const inWorkdir = (workdir: string, path: string | undefined) =>
  path === undefined ? workdir : path.startsWith('/') ? path : `${workdir}/${path}`;

export async function bash(
  parts: CommandParts,
  running: RunningCall,
  { command, run_in_background, workdir }: ToolInput<'bash'>,
): Promise<ToolOutcome> {
  const request = { shell: command, workdir: inWorkdir(running.workdir, workdir) };
  if (!run_in_background) return outcomeOf(await runCommand(parts, running, request), running.timeoutMs);
  const id = await startInBackground(parts, running, request);
  return {
    content: [{ type: 'text', text: `Started in the background with bash_id "${id}"` }],
    structured: { bash_id: id, next_offset: 0 },
    exitCode: null,
  };
}

/** A number that the same tool call always gets. */
export function numberOf({ call }: RunningCall): number {
  if (call.toolCallId === undefined) return randomInt(1, 2 ** 31);
  return (createHash('sha256').update(call.toolCallId).digest().readUInt32BE() >>> 1) + 1;
}

/** Starts a command whose input stays open, and leaves it running. */
export async function startInBackground(
  { commands }: CommandParts,
  running: RunningCall,
  request: { shell: string; workdir: string; tty?: boolean },
  id = `bash-${numberOf(running)}`,
): Promise<string> {
  const { tty, ...rest } = request;
  const { handle } = await commands.start(
    running.principal,
    running.sandbox,
    {
      ...rest,
      id,
      user: running.user,
      overflow: 'drop',
      timeoutMs: BACKGROUND_TIMEOUT_MS,
      ...(tty ? { pty: { cols: 120, rows: 40 } } : { stdin: true }),
    },
    { idempotencyKey: keyOf(running), durable: true },
  );
  await handle[Symbol.asyncDispose]();
  return handle.id;
}

export interface Progress {
  output: HeadAndTail;
  nextOffset: number;
  /** Undefined while it runs. */
  exitCode: number | undefined;
}

/** Reads what a command has written since `offset`, and waits for more, or its end, for so long. */
export async function readProgress(
  { commands }: CommandParts,
  { principal, sandbox, call, signal }: RunningCall,
  {
    id,
    offset,
    waitMs,
    untilEnd = false,
  }: { id: string; offset: number; waitMs: number; untilEnd?: boolean },
): Promise<Progress> {
  const output = new HeadAndTail(call.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES);
  let nextOffset = offset;
  const waiting = new AbortController();
  const handle = await commands.read(principal, sandbox, id, { offset, signal: waiting.signal });
  await using _ = handle;
  const stop = () => waiting.abort(new CayError('cancelled', 'No more output is waited for'));
  const info = await commands.get(principal, sandbox, id);
  const isThere = info.outputBytes > offset;
  let timer = setTimeout(stop, isThere && !untilEnd ? Math.max(QUIET_MS, 0) : waitMs);
  const overall = setTimeout(stop, Math.max(waitMs, QUIET_MS));
  signal.addEventListener('abort', stop, { once: true });
  try {
    for await (const chunk of handle.output) {
      if (chunk.channel === 'gap') nextOffset = chunk.offset + chunk.bytes;
      else {
        output.add(chunk.data);
        nextOffset = chunk.offset + chunk.data.length;
      }
      if (untilEnd) continue;
      clearTimeout(timer);
      timer = setTimeout(stop, QUIET_MS);
    }
  } catch (error) {
    if (!waiting.signal.aborted || signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
    clearTimeout(overall);
    signal.removeEventListener('abort', stop);
  }
  const { end, outputBytes } = await commands.get(principal, sandbox, id);
  // An end whose last output was not read yet comes with the next call.
  const isOver = end !== undefined && nextOffset >= outputBytes;
  return { output, nextOffset, exitCode: isOver ? shellExitCode(end) : undefined };
}

export async function bashOutput(
  parts: CommandParts,
  running: RunningCall,
  { bash_id: id, offset = 0, wait_ms: waitMs = 0 }: ToolInput<'bash_output'>,
): Promise<ToolOutcome> {
  const { output, nextOffset, exitCode } = await readProgress(parts, running, { id, offset, waitMs });
  const status = exitCode === undefined ? 'running' : 'ended';
  const note = exitCode === undefined ? '[still running]' : `[ended with exit code ${exitCode}]`;
  const omittedBytes = output.omittedBytes;
  const text = output.text();
  return {
    content: [{ type: 'text', text: text === '' ? note : `${text.replace(/\n$/, '')}\n${note}` }],
    structured: { bash_id: id, status, next_offset: nextOffset },
    exitCode: exitCode ?? null,
    ...(omittedBytes > 0 && { truncated: { omittedBytes } }),
  };
}

export async function bashInput(
  { commands }: CommandParts,
  { principal, sandbox, signal }: RunningCall,
  { bash_id: id, data, eof = false }: ToolInput<'bash_input'>,
): Promise<ToolOutcome> {
  const bytes = Buffer.from(data);
  const source = (async function* () {
    if (bytes.length > 0) yield bytes;
  })();
  await commands.input(principal, sandbox, id, source, { signal, close: eof });
  const closed = eof ? ' and closed its input' : '';
  return {
    content: [{ type: 'text', text: `Sent ${bytes.length} bytes to "${id}"${closed}` }],
    structured: { bash_id: id, bytes: bytes.length },
  };
}

export async function bashKill(
  { commands }: CommandParts,
  { principal, sandbox, signal }: RunningCall,
  { bash_id: id }: ToolInput<'bash_kill'>,
): Promise<ToolOutcome> {
  const { end } = await commands.get(principal, sandbox, id);
  if (end === undefined) await commands.signal(principal, sandbox, id, 'SIGKILL', { signal });
  const text = end === undefined ? `Ended "${id}"` : `"${id}" had ended before`;
  return { content: [{ type: 'text', text }], structured: { bash_id: id, was_running: end === undefined } };
}
