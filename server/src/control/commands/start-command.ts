import { CayError, isCayError, newId, type ExecBody, type Sandbox } from '@cay/sdk/protocol';
import { forgotten } from './command-keys.ts';
import type { CommandLogs } from './command-logs.ts';
import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import type { SandboxRow } from '../../records/sandboxes.ts';
import type { CommandHandle, Guest, GuestExec } from '../../guest/guest.ts';
import { markAudited } from '../events/audited-errors.ts';
import { noteEnd, noteStart } from './command-events.ts';
import { watchEnd } from './watch-end.ts';
import { inBackground } from '../../lib/in-background.ts';

export interface StartOptions {
  idempotencyKey?: string;
  signal?: AbortSignal;
  /** Where commands with an idempotency key are recorded. */
  logs?: CommandLogs;
  /** Records the command also without such a key. */
  durable?: boolean;
}

export interface Started {
  handle: CommandHandle;
  /** Absent if the command is only known from its record. */
  guest?: Guest;
  sandbox: string;
  /** Settles when the input that came along was taken, or will never be. */
  fed: Promise<void>;
}

const INPUT_CHUNK = 64 * 1024;
/** How much of its line a record of a command has. */
const SHOWN_ARGUMENTS = 64;
const SHOWN_TEXT = 4096;
const REFUSED = new Set<string>([
  'not_found',
  'permission_denied',
  'invalid_argument',
  'resource_exhausted',
  'unsupported',
]);

const NOTE_AGAIN_MS = 1000;

/** Starts a command with the sandbox's defaults, notes it, and feeds it the input that came along. */
export async function startCommand(
  control: Control,
  principal: Principal,
  ref: string,
  body: ExecBody,
  options: StartOptions = {},
): Promise<Started> {
  const { input, encoding: _encoding, maxOutputBytes: _max, expose, ...request } = body;
  const { idempotencyKey, signal, logs } = options;
  const before =
    idempotencyKey === undefined ? undefined : earlier(control.get(principal, ref), control, body, options);
  if (before) return before;
  const { guest, row } = await control.enter(principal, ref);
  const { id, started } = identify(control, row, body, idempotencyKey);
  if (started) {
    const recorded = logs?.get(row.id, id) && logs.read(row.id, id, { signal });
    const handle =
      recorded ??
      (await guest.attach(id, { signal }).catch((error: unknown) => {
        throw isCayError(error, 'not_found') ? forgotten(idempotencyKey!, id) : error;
      }));
    return { handle, guest, sandbox: row.id, fed: Promise.resolve() };
  }
  // A port that is exposed already stays as visible as it is.
  if (expose !== undefined && !row.ports.some(({ port }) => port === expose))
    await control.expose(principal, row.id, { port: expose, visibility: 'private' });
  const recording = idempotencyKey !== undefined || options.durable ? logs : undefined;
  recording?.announce({
    sandbox: row.id,
    id,
    argv: (request.argv ?? ['sh', '-c', request.shell!])
      .slice(0, SHOWN_ARGUMENTS)
      .map((text) => text.slice(0, SHOWN_TEXT)),
    pty: request.pty !== undefined,
    overflow: request.overflow ?? 'wait',
    key: principal.key,
  });
  const direct = await start(control, row, guest, idempotencyKey, signal, {
    ...request,
    id,
    env: { ...row.spec.env, ...request.env },
    workdir: request.workdir ?? row.spec.workdir,
    user: request.user ?? row.spec.user,
    ...(input !== undefined && { stdin: true }),
  }).catch(async (error: unknown) => {
    if (isRefusal(error)) await recording?.withdraw(row.id, id);
    noteStart(control, principal, row, id, request, error instanceof CayError ? error.code : 'internal');
    throw markAudited(error);
  });
  if (!direct.existing) noteStart(control, principal, row, id, request);
  // Whether the command reads its input is its own affair.
  const fed =
    input === undefined || direct.existing ? Promise.resolve() : feed(direct, input).catch(() => {});
  if (recording) {
    // Of one that is waited for the sandbox knows it by this hold; one that is left running is let go when it
    // has its input.
    if (options.durable) fed.then(() => direct[Symbol.asyncDispose]()).catch(() => {});
    await recording.record(row.id, id, {
      pid: direct.pid,
      anew: !direct.existing,
      ...(!options.durable && { handle: direct }),
    });
    // The guest may forget what was recorded, so all that is read is read from the record.
    return {
      handle: { ...recording.read(row.id, id, { signal }), existing: direct.existing },
      guest,
      sandbox: row.id,
      fed,
    };
  }
  if (!direct.existing) {
    const noted = direct.ended.then((end) => {
      if (end.kind === 'lost') watchEnd(control, principal, row, id);
      else noteEnd(control, principal.key, row, id, end);
    });
    inBackground(noted, control.health.noteError);
  }
  return { handle: direct, guest, sandbox: row.id, fed };
}

/** What an earlier call with the same key has recorded, where the sandbox itself cannot be asked. */
function earlier(
  sandbox: Sandbox,
  control: Control,
  body: ExecBody,
  { idempotencyKey, logs, signal }: StartOptions,
): Started | undefined {
  if (sandbox.state === 'active' || idempotencyKey === undefined || !logs) return undefined;
  const id = control.commandKeys.find(sandbox.id, idempotencyKey, body);
  if (id === undefined || !logs.get(sandbox.id, id)) return undefined;
  return { handle: logs.read(sandbox.id, id, { signal }), sandbox: sandbox.id, fed: Promise.resolve() };
}

async function feed(handle: CommandHandle, input: string): Promise<void> {
  const data = Buffer.from(input);
  for (let at = 0; at < data.length; at += INPUT_CHUNK)
    await handle.write(data.subarray(at, at + INPUT_CHUNK));
  await handle.closeStdin();
}

/**
 * The id of the command that a call means, and whether it is known to have been started by an earlier call
 * with the same key.
 */
function identify(
  control: Control,
  row: SandboxRow,
  body: ExecBody,
  idempotencyKey: string | undefined,
): { id: string; started: boolean } {
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
  const handle = await guest.exec(request, { signal }).catch((error: unknown) => {
    if (isRefusal(error)) control.commandKeys.release(row.id, idempotencyKey);
    throw error;
  });
  noteStarted(control, row.id, idempotencyKey);
  return handle;
}

/** A full disk does not undo what runs: until there is room the guest alone knows that it was started. */
function noteStarted(control: Control, sandbox: string, idempotencyKey: string): void {
  try {
    control.commandKeys.started(sandbox, idempotencyKey);
  } catch (error) {
    if (!isCayError(error, 'resource_exhausted')) throw error;
    setTimeout(() => {
      try {
        noteStarted(control, sandbox, idempotencyKey);
      } catch {
        // The records were closed: the next server asks the guest again, under the same id.
      }
    }, NOTE_AGAIN_MS).unref();
  }
}

/** Only a refusal tells that nothing was started. */
function isRefusal(error: unknown): boolean {
  return error instanceof CayError && REFUSED.has(error.code);
}

export function idempotencyKeyOf(headers: NodeJS.Dict<string | string[]>): string | undefined {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key === 'string' && /^[\x21-\x7e]{1,255}$/.test(key)) return key;
  throw new CayError('invalid_argument', 'An Idempotency-Key is 1 to 255 visible ASCII characters');
}
