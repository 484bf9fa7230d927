import type { CommandEnd, ExecRequest } from '@cay/sdk/protocol';
import type { EventAppender } from '../../records/events/events.ts';
import { withoutSecrets } from '../events/redact.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { valueMask } from './mask-values.ts';

/** Writes the audit events of commands. Resolves when they are in the log, and never rejects. */
export interface CommandAudit {
  /**
   * The command line, its user and its directory. Environment and input are left out. `outcome` is `ok` or
   * the code of the error with which the guest refused the command.
   */
  started(
    principal: Principal,
    row: SandboxRow,
    id: string,
    request: Pick<ExecRequest, 'argv' | 'shell' | 'env' | 'user' | 'workdir'>,
    outcome?: string,
  ): Promise<void>;
  ended(
    key: string | null,
    row: Pick<SandboxRow, 'id' | 'project'>,
    id: string,
    end: CommandEnd,
  ): Promise<void>;
}

const MAX_ARGUMENTS = 64;
const MAX_TEXT = 1024;
const MAX_PROGRAM = 256;
/** Of all arguments together. */
const MAX_ALL_TEXT = 16 * 1024;

export function commandAudit(events: EventAppender): CommandAudit {
  return {
    started(principal, row, id, request, outcome = 'ok') {
      const mask = valueMask(row.spec.env, request.env ?? {});
      // Masks twice the length that is kept, so that an API key which is cut off at the end is recognised.
      const safe = (text: string, length = MAX_TEXT) =>
        withoutSecrets(mask(text, 2 * length)).slice(0, length);
      const { argv, shell } = request;
      return events.append({
        type: 'command.started',
        project: row.project,
        sandbox: row.id,
        key: principal.key,
        outcome,
        data: {
          command: id,
          program: argv?.[0] === undefined ? 'shell' : safe(argv[0], MAX_PROGRAM),
          // A refused command line is left out: refused calls are cheap to repeat and their lines are long.
          ...(argv && outcome === 'ok' && shownArguments(argv, safe)),
          ...(shell !== undefined && outcome === 'ok' && { shell: safe(shell) }),
          user: request.user ?? row.spec.user,
          workdir: request.workdir ?? row.spec.workdir,
        },
      });
    },
    ended(key, { id: sandbox, project }, id, end) {
      return events.append({ type: 'command.ended', project, sandbox, key, data: { command: id, ...end } });
    },
  };
}

/** The first arguments within the bounds, and the number of all arguments if some are left out. */
function shownArguments(
  argv: readonly string[],
  safe: (text: string) => string,
): { argv: string[]; arguments?: number } {
  const shown: string[] = [];
  let room = MAX_ALL_TEXT;
  for (const text of argv) {
    if (shown.length === MAX_ARGUMENTS || room <= 0) return { argv: shown, arguments: argv.length };
    const argument = safe(text);
    room -= argument.length;
    shown.push(argument);
  }
  return { argv: shown };
}
