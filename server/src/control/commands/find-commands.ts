import { CayError, type CommandInfo } from '@cay/sdk/protocol';
import type { Guest } from '../../guest/guest.ts';
import { valueWithin } from '../../lib/timeout.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import { commandInGuest } from './ask-guest.ts';
import type { CommandVerbs } from './command.ts';
import type { CommandParts } from './open-commands.ts';

/** How long a guest may take to say which own command it runs. */
const SETTLE_MS = 5_000;

type FindVerbs = Pick<
  CommandVerbs,
  'get' | 'list' | 'read' | 'attach' | 'offsetSince' | 'input' | 'signal' | 'resize' | 'forget'
>;

/**
 * Finds commands in the guest and in the records. Where both know a command, the guest says how it stands and
 * the log has its output. A sandbox that does not run is not woken for what the records can answer.
 */
export function findVerbs({ find, enter, logs }: Pick<CommandParts, 'find' | 'enter' | 'logs'>): FindVerbs {
  /** What is recorded of a command, once it is certain that the record is about the current own command. */
  async function recordOf({ id: sandbox }: SandboxRow, id: string): Promise<CommandInfo | undefined> {
    const settled = await valueWithin(
      logs.settled(sandbox, id).then(() => true),
      SETTLE_MS,
    );
    if (!settled)
      throw new CayError('unavailable', `Timed out asking sandbox "${sandbox}" about command "${id}"`);
    return logs.get(sandbox, id);
  }

  const verbs: FindVerbs = {
    async get(principal, ref, id) {
      const row = await find(principal, ref);
      const recorded = await recordOf(row, id);
      if (recorded && (recorded.end || isAtRest(row))) return recorded;
      const { guest } = await enter(principal, row.id);
      const info = await commandInGuest(guest, id);
      if (info) return merged(info, recorded);
      if (recorded) return recorded;
      throw unknownCommand(id);
    },
    async list(principal, ref, options) {
      const row = await find(principal, ref);
      const recorded = await logs.list(row.id);
      if (isAtRest(row) && recorded.length > 0) return recorded;
      const { guest } = await enter(principal, row.id);
      const records = new Map(recorded.map((info) => [info.id, info]));
      const remembered = (await guest.commands(options)).map((info) => merged(info, records.get(info.id)));
      const ids = new Set(remembered.map(({ id }) => id));
      const rest = recorded.filter(({ id }) => !ids.has(id));
      return [...rest, ...remembered].sort((one, other) => one.startedAtMs - other.startedAtMs);
    },
    async read(principal, ref, id, { offset, signal }) {
      const row = await find(principal, ref);
      if (await recordOf(row, id)) return logs.read(row.id, id, { offset, signal });
      const { guest } = await enter(principal, row.id);
      await requireInGuest(guest, id);
      return guest.attach(id, { offset, signal });
    },
    async attach(principal, ref, id, { offset, signal }) {
      const row = await find(principal, ref);
      const recorded = await recordOf(row, id);
      if (recorded && (recorded.end || isAtRest(row)))
        return { handle: await logs.read(row.id, id, { offset, signal }) };
      const { guest } = await enter(principal, row.id);
      if (!recorded) return { guest, handle: await guest.attach(id, { offset, signal }) };
      const { outputBytes } = await requireInGuest(guest, id);
      const input = await guest.attach(id, { offset: outputBytes, signal });
      return { guest, handle: await logs.read(row.id, id, { offset, signal, input }) };
    },
    async offsetSince(principal, ref, id, atMs) {
      const row = await find(principal, ref);
      const recorded = (await recordOf(row, id)) && (await logs.offsetSince(row.id, id, atMs));
      if (recorded !== undefined) return recorded;
      const { startedAtMs } = await verbs.get(principal, ref, id);
      if (atMs <= startedAtMs) return 0;
      throw new CayError(
        'failed_precondition',
        `Cannot find the output of command "${id}" by time: its output is not recorded`,
        { hint: 'read it by offset, or launch commands whose output is asked for by time' },
      );
    },
    async input(principal, ref, id, data, { close, signal } = {}) {
      const { guest } = await enter(principal, ref);
      const { outputBytes } = await requireInGuest(guest, id);
      await using handle = await guest.attach(id, { offset: outputBytes, signal });
      for await (const chunk of data) await handle.write(chunk);
      if (close) await handle.closeStdin();
    },
    async signal(principal, ref, id, signal, options) {
      const { guest } = await enter(principal, ref);
      await guest.signal(id, signal, options);
    },
    async resize(principal, ref, id, size, options) {
      const { guest } = await enter(principal, ref);
      await guest.resize(id, size, options);
    },
    async forget(principal, ref, id, options) {
      const row = await find(principal, ref);
      const recorded = (await logs.get(row.id, id)) !== undefined;
      if (recorded && isAtRest(row)) return logs.forget(row.id, id);
      const { guest } = await enter(principal, row.id);
      const info = recorded ? await commandInGuest(guest, id, options) : undefined;
      // The record goes first: without it, a server that dies here would record the command's end as lost.
      if (recorded && (!info || info.end)) await logs.forget(row.id, id);
      await guest.forget(id, options);
    },
  };
  return verbs;
}

function isAtRest({ state }: SandboxRow): boolean {
  return state !== 'active' && state !== 'creating';
}

async function requireInGuest(guest: Guest, id: string): Promise<CommandInfo> {
  const info = await commandInGuest(guest, id);
  if (!info) throw unknownCommand(id);
  return info;
}

export function unknownCommand(id: string): CayError {
  return new CayError('not_found', `Command "${id}" does not exist`);
}

/** The guest's view, with the output that either of both keeps. */
function merged(info: CommandInfo, recorded: CommandInfo | undefined): CommandInfo {
  return recorded ? { ...info, keptFrom: Math.min(info.keptFrom, recorded.keptFrom) } : info;
}
