/** Tier 2: runs a command for a tool, and keeps head and tail of its output. */
import { shellExitCode, type CommandEnd, type ExecBody } from '@cay/sdk/protocol';
import type { CommandHandle, Guest } from '../../guest/guest.ts';
import type { CommandVerbs } from '../commands/command.ts';
import { HeadAndTail } from './head-and-tail.ts';
import { DEFAULT_OUTPUT_BYTES } from './limits.ts';
import { saveOutput, type SavedOutput } from './saved-output.ts';
import type { RunningCall, ToolOutcome } from './tool.ts';

export interface CommandParts {
  commands: CommandVerbs;
  /** A guest whose calls do not wait while a pause is on its way: the pause waits for this call. */
  connect(): Promise<Guest>;
}

export interface Ran {
  id: string;
  end: CommandEnd | undefined;
  output: HeadAndTail;
  savedTo: string | undefined;
  /** Where the output goes on. */
  offset: number;
}

const PROGRESS_MS = 250;
const PROGRESS_BYTES = 2048;

/** The idempotency key of the command of a tool call: with it the command is started once. */
export const keyOf = ({ call }: RunningCall) =>
  call.toolCallId === undefined ? undefined : `tool:${call.toolCallId}`;

/** Runs a command to its end. */
export async function runCommand(
  { commands, connect }: CommandParts,
  running: RunningCall,
  body: Pick<ExecBody, 'argv' | 'shell' | 'env' | 'workdir'>,
): Promise<Ran> {
  const { principal, sandbox, user, timeoutMs, signal } = running;
  const request: ExecBody = { ...body, user, timeoutMs };
  const { handle } = await commands.start(principal, sandbox, request, {
    idempotencyKey: keyOf(running),
    signal,
  });
  await using _ = handle;
  const kill = () => void commands.signal(principal, sandbox, handle.id, 'SIGKILL').catch(() => {});
  // Nobody would ever read the output of a command that belongs to no id.
  if (running.call.toolCallId === undefined) signal.addEventListener('abort', kill, { once: true });
  try {
    return await collect(handle, running, connect);
  } finally {
    signal.removeEventListener('abort', kill);
  }
}

async function collect(
  handle: CommandHandle,
  running: RunningCall,
  connect: CommandParts['connect'],
): Promise<Ran> {
  const most = running.call.maxOutputBytes ?? DEFAULT_OUTPUT_BYTES;
  const output = new HeadAndTail(most);
  let first: Uint8Array[] | undefined = [];
  let saving: SavedOutput | undefined;
  let reportedAt = performance.now();
  let offset = 0;
  for await (const chunk of handle.output) {
    if (chunk.channel === 'gap') {
      offset = chunk.offset + chunk.bytes;
      continue;
    }
    offset = chunk.offset + chunk.data.length;
    output.add(chunk.data);
    if (first) {
      first.push(Buffer.from(chunk.data));
      if (output.bytes > most) {
        saving = saveOutput(await connect(), running.user, handle.id);
        for (const piece of first) await saving.add(piece);
        first = undefined;
      }
    } else await saving!.add(chunk.data);
    if (performance.now() - reportedAt > PROGRESS_MS) {
      reportedAt = performance.now();
      running.onProgress({ bytes: output.bytes, text: output.newest(PROGRESS_BYTES) });
    }
  }
  const end = await handle.ended;
  return { id: handle.id, end, output, savedTo: await saving?.finish(), offset };
}

/** The result of a command that has ended. */
export function outcomeOf({ id, end, output, savedTo }: Ran, timeoutMs: number): ToolOutcome {
  const exitCode = end === undefined ? null : shellExitCode(end);
  const omittedBytes = output.omittedBytes;
  const notes = [];
  if (end?.kind === 'timed_out') notes.push(`[ended after ${timeoutMs} ms]`);
  else if (end?.kind === 'oom_killed') notes.push('[killed: the sandbox is out of memory]');
  else if (end?.kind === 'signalled') notes.push(`[ended by ${end.signal}]`);
  else if (end?.kind === 'lost') notes.push(`[lost: ${end.reason}]`);
  else if (exitCode !== 0 && exitCode !== null) notes.push(`[exit code ${exitCode}]`);
  const kept = output.text(savedTo);
  const shown = [...(kept === '' ? [] : [kept.replace(/\n$/, '')]), ...notes].join('\n');
  return {
    content: [{ type: 'text', text: shown === '' ? '[no output]' : shown }],
    structured: { command_id: id, output_bytes: output.bytes, ...(end && { end }) },
    exitCode,
    isError: exitCode !== 0,
    ...(omittedBytes > 0 && {
      truncated: { omittedBytes, ...(savedTo !== undefined && { savedTo }) },
    }),
  };
}
