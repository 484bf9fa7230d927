import { CayError, isCayError, newId, type ExecBody, type ExecRequest } from '@cay/sdk/protocol';
import { forgotten } from '../control/command-keys.ts';
import type { Control } from '../control/control.ts';
import type { Principal } from '../control/principal.ts';
import type { SandboxRow } from '../control/records/sandboxes.ts';
import type { CommandHandle, Guest, GuestExec } from '../guest/guest.ts';

export interface StartOptions {
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface Started {
  handle: CommandHandle;
  guest: Guest;
  row: SandboxRow;
  /** Settles when the input that came along was taken, or will never be. */
  fed: Promise<void>;
}

const INPUT_CHUNK = 64 * 1024;
const REFUSED = new Set<string>(['not_found', 'permission_denied', 'invalid_argument', 'resource_exhausted', 'unsupported']);

/** Starts a command with the sandbox's defaults, notes it, and feeds it the input that came along. */
export async function startCommand(
  control: Control,
  principal: Principal,
  ref: string,
  body: ExecBody,
  options: StartOptions = {},
): Promise<Started> {
  const { input, encoding: _encoding, maxOutputBytes: _max, expose, ...request } = body;
  const { guest, row } = await control.enter(principal, ref);
  const { idempotencyKey, signal } = options;
  const { id, started } = identify(control, row, body, idempotencyKey);
  if (started) {
    const handle = await guest.attach(id, { signal }).catch((error: unknown) => {
      throw isCayError(error, 'not_found') ? forgotten(idempotencyKey!, id) : error;
    });
    return { handle, guest, row, fed: Promise.resolve() };
  }
  // A port that is exposed already stays as visible as it is.
  if (expose !== undefined && !row.ports.some(({ port }) => port === expose))
    await control.expose(principal, row.id, { port: expose, visibility: 'private' });
  const handle = await start(control, row, guest, idempotencyKey, signal, {
    ...request,
    id,
    env: { ...row.spec.env, ...request.env },
    workdir: request.workdir ?? row.spec.workdir,
    user: request.user ?? row.spec.user,
    ...(input !== undefined && { stdin: true }),
  });
  if (!handle.existing) noteCommand(control, principal, row, handle.id, request);
  // Whether the command reads its input is its own affair.
  const fed = input === undefined || handle.existing ? Promise.resolve() : feed(handle, input).catch(() => {});
  return { handle, guest, row, fed };
}

/** Arguments may hold secrets, so the log has the program's name alone. */
function noteCommand(control: Control, principal: Principal, row: SandboxRow, id: string, request: Pick<ExecRequest, 'argv'>): void {
  const program = request.argv?.[0]?.slice(0, 256) ?? 'shell';
  control.events.append({
    type: 'command.started',
    project: row.project,
    sandbox: row.id,
    key: principal.key,
    data: { command: id, program },
  });
}

async function feed(handle: CommandHandle, input: string): Promise<void> {
  const data = Buffer.from(input);
  for (let at = 0; at < data.length; at += INPUT_CHUNK) await handle.write(data.subarray(at, at + INPUT_CHUNK));
  await handle.closeStdin();
}

/** The id of the command that a call means, and whether it is known to have been started by an earlier call with the same key. */
function identify(control: Control, row: SandboxRow, body: ExecBody, idempotencyKey: string | undefined): { id: string; started: boolean } {
  const id = body.id ?? newId('cmd');
  if (idempotencyKey === undefined) return { id, started: false };
  return control.commandKeys.claim(row.id, idempotencyKey, body, id);
}

async function start(
  control: Control,
  row: SandboxRow,
  guest: Guest,
  idempotencyKey: string | undefined,
  signal: AbortSignal | undefined,
  request: GuestExec,
): Promise<CommandHandle> {
  if (idempotencyKey === undefined) return guest.exec(request, { signal });
  try {
    const handle = await guest.exec(request, { signal });
    control.commandKeys.started(row.id, idempotencyKey);
    return handle;
  } catch (error) {
    // Only a refusal tells that nothing was started.
    if (error instanceof CayError && REFUSED.has(error.code)) control.commandKeys.release(row.id, idempotencyKey);
    throw error;
  }
}

export function idempotencyKeyOf(headers: NodeJS.Dict<string | string[]>): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new CayError('invalid_argument', 'An Idempotency-Key is 1 to 255 visible ASCII characters');
}
