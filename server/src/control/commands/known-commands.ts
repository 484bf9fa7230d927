import { CayError, isCayError, type CommandInfo, type Sandbox } from '@cay/sdk/protocol';
import type { CommandLogs } from './command-logs.ts';
import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import type { CallOptions, CommandHandle, Guest } from '../../guest/guest.ts';
import { valueWithin } from '../../lib/timeout.ts';

/**
 * Commands as the sandbox remembers them, and as they are recorded where it does not, or cannot be asked.
 * Nothing is woken for a record.
 */
export interface KnownCommands {
  get(principal: Principal, ref: string, id: string): Promise<CommandInfo>;
  list(principal: Principal, ref: string, options?: CallOptions): Promise<CommandInfo[]>;
  /** A recorded command is read from its record: of what was recorded the guest may have forgotten some. */
  read(
    principal: Principal,
    ref: string,
    id: string,
    options: CallOptions & { offset: number },
  ): Promise<CommandHandle>;
  /**
   * Where that part of its output begins which was written from then on. Rejects `failed_precondition` if
   * nobody has noted that.
   */
  offsetSince(principal: Principal, ref: string, id: string, atMs: number): Promise<number>;
  /** The same, for those who also write. There is no guest if the sandbox does not run. */
  attach(
    principal: Principal,
    ref: string,
    id: string,
    options: CallOptions & { offset: number },
  ): Promise<{ guest?: Guest; handle: CommandHandle }>;
  forget(principal: Principal, ref: string, id: string, options?: CallOptions): Promise<void>;
  inGuest(guest: Guest, id: string): Promise<CommandInfo>;
}

/** How long a sandbox has to say which command of its own it has. */
const SETTLE_MS = 5_000;

export function knownCommands(control: Control, logs: CommandLogs): KnownCommands {
  async function inGuest(guest: Guest, id: string): Promise<CommandInfo> {
    const info = (await guest.commands()).find((command) => command.id === id);
    if (!info) throw new CayError('not_found', `Command "${id}" does not exist`);
    return info;
  }

  async function recordOf(sandbox: Sandbox, id: string): Promise<CommandInfo | undefined> {
    // A guest that is mute does not keep anybody waiting for what is recorded of an earlier start.
    const isSettled = await valueWithin(
      logs.settled(sandbox.id, id).then(() => true),
      SETTLE_MS,
    );
    if (!isSettled)
      throw new CayError('unavailable', `Sandbox "${sandbox.id}" does not say which command "${id}" it has`);
    return logs.get(sandbox.id, id);
  }

  const asleep = ({ state }: Sandbox) => state !== 'active' && state !== 'creating';

  const known: KnownCommands = {
    inGuest,
    async get(principal, ref, id) {
      const sandbox = control.get(principal, ref);
      const recorded = await recordOf(sandbox, id);
      if (recorded && (recorded.end || asleep(sandbox))) return recorded;
      const { guest } = await control.enter(principal, sandbox.id);
      try {
        return merged(await inGuest(guest, id), recorded);
      } catch (error) {
        if (recorded && isCayError(error, 'not_found')) return recorded;
        throw error;
      }
    },
    async list(principal, ref, options) {
      const sandbox = control.get(principal, ref);
      const recorded = logs.list(sandbox.id);
      if (asleep(sandbox) && recorded.length > 0) return recorded;
      const { guest } = await control.enter(principal, sandbox.id);
      const records = new Map(recorded.map((info) => [info.id, info]));
      const remembered = (await guest.commands(options)).map((info) => merged(info, records.get(info.id)));
      const ids = new Set(remembered.map(({ id }) => id));
      const rest = recorded.filter(({ id }) => !ids.has(id));
      return [...rest, ...remembered].sort((one, other) => one.startedAtMs - other.startedAtMs);
    },
    async read(principal, ref, id, { offset, signal }) {
      const sandbox = control.get(principal, ref);
      if (await recordOf(sandbox, id)) return logs.read(sandbox.id, id, { offset, signal });
      const { guest } = await control.enter(principal, sandbox.id);
      await inGuest(guest, id);
      return guest.attach(id, { offset, signal });
    },
    async offsetSince(principal, ref, id, atMs) {
      const sandbox = control.get(principal, ref);
      const recorded = (await recordOf(sandbox, id)) && (await logs.offsetSince(sandbox.id, id, atMs));
      if (recorded !== undefined) return recorded;
      const { startedAtMs } = await known.get(principal, ref, id);
      if (atMs <= startedAtMs) return 0;
      throw new CayError(
        'failed_precondition',
        `Nobody knows when command "${id}" wrote what: its output is not recorded`,
        {
          hint: 'read it by offset, or launch commands whose output is asked for by time',
        },
      );
    },
    async attach(principal, ref, id, { offset, signal }) {
      const sandbox = control.get(principal, ref);
      const recorded = await recordOf(sandbox, id);
      if (recorded && (recorded.end || asleep(sandbox)))
        return { handle: logs.read(sandbox.id, id, { offset, signal }) };
      const { guest } = await control.enter(principal, sandbox.id);
      if (!recorded) return { guest, handle: await guest.attach(id, { offset, signal }) };
      const { outputBytes } = await inGuest(guest, id);
      const input = await guest.attach(id, { offset: outputBytes, signal });
      const output = logs.read(sandbox.id, id, { offset, signal });
      const handle: CommandHandle = {
        ...output,
        write: (data) => input.write(data),
        closeStdin: () => input.closeStdin(),
        async [Symbol.asyncDispose]() {
          await input[Symbol.asyncDispose]();
          await output[Symbol.asyncDispose]();
        },
      };
      return { guest, handle };
    },
    async forget(principal, ref, id, options) {
      const sandbox = control.get(principal, ref);
      const recorded = logs.get(sandbox.id, id) !== undefined;
      if (recorded && asleep(sandbox)) return logs.forget(sandbox.id, id);
      const { guest } = await control.enter(principal, sandbox.id);
      const info = recorded
        ? (await guest.commands(options)).find((command) => command.id === id)
        : undefined;
      // Its end is recorded before the guest forgets it, and one that runs is not forgotten.
      if (recorded && (!info || info.end)) await logs.forget(sandbox.id, id);
      await guest.forget(id, options);
    },
  };
  return known;
}

/** What the sandbox says now, with what is kept of it in either place. */
function merged(info: CommandInfo, recorded: CommandInfo | undefined): CommandInfo {
  return recorded ? { ...info, keptFrom: Math.min(info.keptFrom, recorded.keptFrom) } : info;
}
