import { CayError, isCayError, type ExecBody } from '@cay/sdk/protocol';
import type { CommandHandle, Guest } from '../../guest/guest.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { markAudited } from '../events/audited-errors.ts';
import type { Principal } from '../tenants/principal.ts';
import { forgotten } from './command-keys.ts';
import type { CommandLogs } from './command-logs.ts';
import type { CommandVerbs, StartedCommand, StartOptions } from './command.ts';
import { claimStart, type KeyedStart } from './keyed-start.ts';
import { recordedLine } from './recorded-line.ts';
import type { CommandParts } from './open-commands.ts';
import type { WatchEnd } from './watch-end.ts';
import type { CommandAudit } from './command-audit.ts';

const INPUT_CHUNK = 64 * 1024;
/** Errors after which it is certain that the guest started nothing. */
const REFUSALS = new Set<string>([
  'not_found',
  'permission_denied',
  'invalid_argument',
  'resource_exhausted',
  'unsupported',
]);

export interface StartParts extends Pick<
  CommandParts,
  'find' | 'enter' | 'expose' | 'keys' | 'logs' | 'trust' | 'onError'
> {
  audit: CommandAudit;
  watchEnd: WatchEnd;
}

/** One call on its way. */
interface Call {
  principal: Principal;
  row: SandboxRow;
  guest: Guest;
  body: ExecBody;
  claim: KeyedStart;
  options: StartOptions;
}

export function startVerb(parts: StartParts): CommandVerbs['start'] {
  const { find, enter, expose, keys, logs, trust, audit, watchEnd, onError } = parts;

  /**
   * What an earlier call with the same key recorded. A sandbox that does not run is not woken to repeat it.
   */
  async function repeatedAtRest(
    row: SandboxRow,
    body: ExecBody,
    key: string,
    { signal }: StartOptions,
  ): Promise<StartedCommand | undefined> {
    if (row.state === 'active') return undefined;
    const id = await keys.find(row.id, key, body);
    if (id === undefined || !(await logs.get(row.id, id))) return undefined;
    return { handle: await logs.read(row.id, id, { signal }), sandbox: row.id, fed: Promise.resolve() };
  }

  async function repeated({ row, guest, claim: { id }, options }: Call): Promise<StartedCommand> {
    const { signal } = options;
    const handle = (await logs.get(row.id, id))
      ? await logs.read(row.id, id, { signal })
      : await guest.attach(id, { signal }).catch((error: unknown) => {
          throw isCayError(error, 'not_found') ? forgotten(options.idempotencyKey!, id) : error;
        });
    return { handle, guest, sandbox: row.id, fed: Promise.resolve() };
  }

  async function exposePort({ principal, row, body: { expose: port } }: Call): Promise<void> {
    if (port === undefined || row.ports.some((exposed) => exposed.port === port)) return;
    await expose(principal, row.id, { port, visibility: 'private' });
  }

  /** Asks the guest. A refusal frees the idempotency key and the record; every outcome is audited. */
  async function exec(call: Call, recording: CommandLogs | undefined): Promise<CommandHandle> {
    const { principal, row, guest, body, claim, options } = call;
    const { input, encoding: _encoding, maxOutputBytes: _max, expose: _expose, ...request } = body;
    try {
      const handle = await guest.exec(
        {
          ...request,
          id: claim.id,
          env: { ...(await trust(row, guest)), ...row.spec.env, ...request.env },
          workdir: request.workdir ?? row.spec.workdir,
          user: request.user ?? row.spec.user,
          ...(input !== undefined && { stdin: true }),
        },
        { signal: options.signal },
      );
      await claim.confirm();
      if (!handle.existing) await audit.started(principal, row, claim.id, request);
      return handle;
    } catch (error) {
      if (isRefusal(error)) {
        await claim.release();
        await recording?.withdraw(row.id, claim.id);
      }
      await audit.started(principal, row, claim.id, request, isCayError(error) ? error.code : 'internal');
      throw markAudited(error);
    }
  }

  async function recorded(call: Call): Promise<StartedCommand> {
    const { principal, row, guest, body, claim, options } = call;
    await logs.announce({
      sandbox: row.id,
      id: claim.id,
      argv: recordedLine(body),
      pty: body.pty !== undefined,
      overflow: body.overflow ?? 'wait',
      key: principal.key,
    });
    const direct = await exec(call, logs);
    const fed = feed(direct, body.input);
    // The recorder attaches by itself to a command that is left running, so this handle is only for the
    // input. A command that the caller waits for is read through this handle, which counts as a running
    // command.
    if (options.durable)
      inBackground(
        fed.then(() => direct[Symbol.asyncDispose]()),
        onError,
      );
    await logs.record(row.id, claim.id, {
      pid: direct.pid,
      restarted: !direct.existing,
      ...(!options.durable && { handle: direct }),
    });
    // The guest may forget output that the log has, so callers read the log.
    const handle = await logs.read(row.id, claim.id, { signal: options.signal, existing: direct.existing });
    return { handle, guest, sandbox: row.id, fed };
  }

  async function unrecorded(call: Call): Promise<StartedCommand> {
    const { principal, row, guest, body, claim } = call;
    const handle = await exec(call, undefined);
    if (!handle.existing) {
      const audited = handle.ended.then((end) =>
        end.kind === 'lost'
          ? watchEnd(principal.key, row, claim.id)
          : audit.ended(principal.key, row, claim.id, end),
      );
      inBackground(audited, onError);
    }
    return { handle, guest, sandbox: row.id, fed: feed(handle, body.input) };
  }

  return async (principal, ref, body, options = {}) => {
    const { idempotencyKey: key, durable = false } = options;
    const before =
      key === undefined ? undefined : await repeatedAtRest(await find(principal, ref), body, key, options);
    if (before) return before;
    const { guest, row } = await enter(principal, ref);
    const call: Call = {
      principal,
      row,
      guest,
      body,
      claim: await claimStart(keys, row.id, body, key),
      options,
    };
    if (call.claim.started) return repeated(call);
    await exposePort(call);
    return durable || key !== undefined ? recorded(call) : unrecorded(call);
  };
}

/** Writes the request's input and closes it. A command that does not read its input is no failure. */
async function feed(handle: CommandHandle, input: string | undefined): Promise<void> {
  if (input === undefined || handle.existing) return;
  try {
    const data = Buffer.from(input);
    for (let at = 0; at < data.length; at += INPUT_CHUNK)
      await handle.write(data.subarray(at, at + INPUT_CHUNK));
    await handle.closeStdin();
  } catch {
    // The command ended or closed its input first.
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof CayError && REFUSALS.has(error.code);
}
