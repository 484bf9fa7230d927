/** The client tools of Anthropic's API: `bash` (20250124) and `str_replace_based_edit_tool` (20250728). */
import { createHash } from 'node:crypto';
import { CayError, execText } from '@cay/sdk/protocol';
import { z } from 'zod';
import { KeyedQueue } from '../../../lib/keyed-queue.ts';
import { edit, list, read, write } from '../guest-tools.ts';
import { COMMAND_TIMEOUT_MS, GUEST_TIMEOUT_MS } from '../limits.ts';
import { readWholeFile } from '../read-whole-file.ts';
import { outcomeOf, runCommand } from '../run-command.ts';
import type { RunningCall, ToolOutcome } from '../tool.ts';
import { dialectOf, type ToolParts } from './dialect.ts';

const Bash = z
  .object({
    command: execText(128 * 1024)
      .min(1)
      .optional()
      .describe('The command line'),
    restart: z.boolean().optional().describe('Forget the directory and variables of earlier commands'),
  })
  .strict()
  .refine(({ command, restart }) => command !== undefined || restart === true, 'must have a "command"');

const Path = execText(4096).min(1);
const Text = z.string().max(256 * 1024);
const EditTool = z.discriminatedUnion('command', [
  z
    .object({
      command: z.literal('view'),
      path: Path,
      view_range: z.tuple([z.int().min(1), z.int().min(-1)]).optional(),
    })
    .strict(),
  z.object({ command: z.literal('create'), path: Path, file_text: z.string().max(8 * 1024 * 1024) }).strict(),
  z
    .object({
      command: z.literal('str_replace'),
      path: Path,
      old_str: Text.min(1),
      new_str: Text.default(''),
    })
    .strict(),
  z
    .object({
      command: z.literal('insert'),
      path: Path,
      insert_line: z.int().min(0).max(10_000_000),
      insert_text: Text,
    })
    .strict(),
]);

/**
 * Directory and variables stay from one command to the next, as in a session, without a process that has to
 * live between them: they are kept in a file when a command ends, however it ends.
 */
async function bash(
  parts: ToolParts,
  running: RunningCall,
  { command, restart }: z.output<typeof Bash>,
): Promise<ToolOutcome> {
  const name = createHash('sha256').update(running.user).digest('hex').slice(0, 12);
  const state = `/tmp/.cay-bash-${name}`;
  const begin = restart
    ? `rm -f -- ${state}`
    : `[ -O ${state} ] && . ${state} 2>/dev/null; trap 'cay_status=$?; trap - EXIT; (umask 077; { export -p; printf "cd %q\\n" "$PWD"; } > ${state}.$$ && mv -f ${state}.$$ ${state}) 2>/dev/null; exit $cay_status' EXIT`;
  const shell = `${begin}\n${command ?? ''}`;
  const request = { argv: ['/bin/bash', '-c', shell], workdir: running.workdir };
  const outcome = outcomeOf(await runCommand(parts, running, request), running.timeoutMs);
  if (command !== undefined || outcome.isError) return outcome;
  return { ...outcome, content: [{ type: 'text', text: 'The shell was restarted' }] };
}

async function editTool(
  parts: ToolParts,
  running: RunningCall,
  input: z.output<typeof EditTool>,
): Promise<ToolOutcome> {
  const { path } = input;
  switch (input.command) {
    case 'view':
      return view(parts, running, input);
    case 'create':
      return write(parts, running, { file_path: path, content: input.file_text });
    case 'str_replace':
      return edit(parts, running, { file_path: path, old_string: input.old_str, new_string: input.new_str });
    case 'insert':
      return insert(parts, running, input);
  }
}

async function view(
  parts: ToolParts,
  running: RunningCall,
  { path, view_range: range }: Extract<z.output<typeof EditTool>, { command: 'view' }>,
): Promise<ToolOutcome> {
  const absolute = path.startsWith('/') ? path : `${running.workdir}/${path}`;
  const { type } = await parts.files.stat(absolute, { follow: true, signal: running.signal });
  if (type === 'directory') return list(parts, running, { path, depth: 2 });
  if (!range) return read(parts, running, { file_path: path });
  const [first, last] = range;
  if (last !== -1 && last < first)
    throw new CayError('invalid_argument', `The view_range [${first}, ${last}] ends before it begins`);
  const limit = last === -1 ? 100_000 : Math.min(last - first + 1, 100_000);
  return read(parts, running, { file_path: path, offset: first, limit });
}

const MOST_CHANGED = 16 * 1024 * 1024;
/** A file is in memory twice meanwhile: one of a project after the other. */
const inserts = new KeyedQueue<string>();

/** After a line; 0 is the start of the file. */
function insert(
  parts: ToolParts,
  running: RunningCall,
  input: Extract<z.output<typeof EditTool>, { command: 'insert' }>,
): Promise<ToolOutcome> {
  return inserts.run(running.principal.project, () => insertNow(parts, running, input));
}

async function insertNow(
  { files }: ToolParts,
  { workdir, signal }: RunningCall,
  input: Extract<z.output<typeof EditTool>, { command: 'insert' }>,
): Promise<ToolOutcome> {
  const path = input.path.startsWith('/') ? input.path : `${workdir}/${input.path}`;
  signal.throwIfAborted();
  const content = await readWholeFile(files, path, { most: MOST_CHANGED, what: 'insert into', signal });
  let at = 0;
  for (let line = 0; line < input.insert_line; line++) {
    const next = content.indexOf(0x0a, at);
    if (at >= content.length)
      throw new CayError(
        'invalid_argument',
        `Cannot insert after line ${input.insert_line}: "${path}" has ${line} lines`,
      );
    at = next === -1 ? content.length : next + 1;
  }
  const needsBreak = at > 0 && content[at - 1] !== 0x0a;
  const text = `${needsBreak ? '\n' : ''}${input.insert_text}${input.insert_text.endsWith('\n') ? '' : '\n'}`;
  const whole = Buffer.concat([content.subarray(0, at), Buffer.from(text), content.subarray(at)]);
  await files.write(path, whole, { signal });
  return {
    content: [{ type: 'text', text: `Inserted after line ${input.insert_line} of "${path}"` }],
    structured: { path, insert_line: input.insert_line },
  };
}

export const ANTHROPIC = dialectOf([
  {
    name: 'bash',
    title: 'Run a command',
    description: 'Runs a command line with bash. Its directory and variables stay for the next one.',
    schema: Bash,
    tier: 2,
    effect: 'commands',
    timeoutMs: COMMAND_TIMEOUT_MS,
    run: bash as never,
  },
  {
    name: 'str_replace_based_edit_tool',
    title: 'View and edit files',
    description: 'Views, creates and edits files: view, create, str_replace, insert.',
    schema: EditTool,
    tier: 1,
    effect: 'changes',
    timeoutMs: GUEST_TIMEOUT_MS,
    run: editTool as never,
  },
]);
