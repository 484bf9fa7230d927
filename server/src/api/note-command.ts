import type { CommandEnd, ExecRequest } from '@cay/sdk/protocol';
import type { Control } from '../control/control.ts';
import type { Principal } from '../control/principal.ts';
import type { SandboxRow } from '../control/records/sandboxes.ts';
import { withoutSecrets } from './redact.ts';

const ARGUMENTS = 64;
const TEXT = 1024;
/** Shorter values are words that stand in many command lines by chance. */
const SHORTEST_VALUE = 6;

/** What is known of a command when it starts: the line and who runs it where, and of its environment and input nothing. */
export function noteStart(
  control: Control,
  principal: Principal,
  row: SandboxRow,
  id: string,
  request: Pick<ExecRequest, 'argv' | 'shell' | 'env' | 'user' | 'workdir'>,
  outcome = 'ok',
): void {
  const values = [row.spec.env, request.env ?? {}].flatMap((env) => Object.values(env)).filter(({ length }) => length >= SHORTEST_VALUE);
  // Longest first, so that no rest of one stays behind where a shorter one was blanked.
  values.sort((one, other) => other.length - one.length);
  const safe = (text: string) => {
    let line = text;
    for (const value of values) line = line.replaceAll(value, '***');
    return withoutSecrets(line).slice(0, TEXT);
  };
  const { argv, shell } = request;
  control.events.append({
    type: 'command.started',
    project: row.project,
    sandbox: row.id,
    key: principal.key,
    outcome,
    data: {
      command: id,
      program: argv?.[0] === undefined ? 'shell' : safe(argv[0]).slice(0, 256),
      ...(argv && { argv: argv.slice(0, ARGUMENTS).map(safe) }),
      ...(shell !== undefined && { shell: safe(shell) }),
      ...(argv && argv.length > ARGUMENTS && { arguments: argv.length }),
      user: request.user ?? row.spec.user,
      workdir: request.workdir ?? row.spec.workdir,
    },
  });
}

export function noteEnd(control: Control, key: string | null, row: Pick<SandboxRow, 'id' | 'project'>, id: string, end: CommandEnd): void {
  control.events.append({ type: 'command.ended', project: row.project, sandbox: row.id, key, data: { command: id, ...end } });
}
