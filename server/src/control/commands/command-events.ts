import type { CommandEnd, ExecRequest } from '@cay/sdk/protocol';
import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import { valueMask } from './mask-values.ts';
import { withoutSecrets } from '../events/redact.ts';

const ARGUMENTS = 64;
const TEXT = 1024;
/** Of all arguments together. */
const ALL_TEXT = 16 * 1024;

const PROGRAM = 256;

/**
 * What is known of a command when it starts: the line and who runs it where, and of its environment and input
 * nothing.
 */
export function noteStart(
  control: Control,
  principal: Principal,
  row: SandboxRow,
  id: string,
  request: Pick<ExecRequest, 'argv' | 'shell' | 'env' | 'user' | 'workdir'>,
  outcome = 'ok',
): void {
  const mask = valueMask(row.spec.env, request.env ?? {});
  // More than is kept, so that a key which is cut off at the end is still known as one.
  const safe = (text: string, length = TEXT) => withoutSecrets(mask(text, 2 * length)).slice(0, length);
  const { argv, shell } = request;
  control.events.append({
    type: 'command.started',
    project: row.project,
    sandbox: row.id,
    key: principal.key,
    outcome,
    data: {
      command: id,
      program: argv?.[0] === undefined ? 'shell' : safe(argv[0], PROGRAM),
      // Of a command that was refused the line is not told: it may be as long as it likes.
      ...(argv && outcome === 'ok' && shownArguments(argv, safe)),
      ...(shell !== undefined && outcome === 'ok' && { shell: safe(shell) }),
      user: request.user ?? row.spec.user,
      workdir: request.workdir ?? row.spec.workdir,
    },
  });
}

/** The arguments as far as there is room for them, and how many there are if that is not all. */
function shownArguments(
  argv: readonly string[],
  safe: (text: string) => string,
): { argv: string[]; arguments?: number } {
  const shown: string[] = [];
  let room = ALL_TEXT;
  for (const text of argv) {
    if (shown.length === ARGUMENTS || room <= 0) return { argv: shown, arguments: argv.length };
    const argument = safe(text);
    room -= argument.length;
    shown.push(argument);
  }
  return { argv: shown };
}

export function noteEnd(
  control: Control,
  key: string | null,
  row: Pick<SandboxRow, 'id' | 'project'>,
  id: string,
  end: CommandEnd,
): void {
  control.events.append({
    type: 'command.ended',
    project: row.project,
    sandbox: row.id,
    key,
    data: { command: id, ...end },
  });
}
