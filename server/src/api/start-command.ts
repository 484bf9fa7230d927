import { createHash } from 'node:crypto';
import { CayError, newId, type ExecBody, type ExecRequest } from '@cay/sdk/protocol';
import type { Control } from '../control/control.ts';
import type { Principal } from '../control/principal.ts';
import type { SandboxRow } from '../control/records/sandboxes.ts';
import type { CommandHandle, Guest } from '../guest/guest.ts';

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
  // A port that is exposed already stays as visible as it is.
  if (expose !== undefined && !row.ports.some(({ port }) => port === expose))
    await control.expose(principal, row.id, { port: expose, visibility: 'private' });
  const handle = await guest.exec(
    {
      ...request,
      id: request.id ?? commandId(options.idempotencyKey),
      env: { ...row.spec.env, ...request.env },
      workdir: request.workdir ?? row.spec.workdir,
      user: request.user ?? row.spec.user,
      ...(input !== undefined && { stdin: true }),
    },
    { signal: options.signal },
  );
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

/** The same idempotency key is the same command id, which the guest starts once. */
function commandId(idempotencyKey: string | undefined): string {
  if (idempotencyKey === undefined) return newId('cmd');
  return `idem-${createHash('sha256').update(idempotencyKey).digest('hex').slice(0, 40)}`;
}

export function idempotencyKeyOf(headers: NodeJS.Dict<string | string[]>): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new CayError('invalid_argument', 'An Idempotency-Key is 1 to 255 visible ASCII characters');
}
