import { isCayError, type CommandEnd, type CommandInfo, type SandboxId } from '@cay/sdk/protocol';
import type { CallOptions, Guest } from '../../guest/guest.ts';

/** Connects to the guest of a running sandbox. Wakes nothing, and does not count as use. */
export type ConnectGuest = (id: SandboxId, options?: CallOptions) => Promise<Guest>;

/** The guest's view of one command; undefined if the guest does not know it. */
export async function commandInGuest(
  guest: Pick<Guest, 'commands'>,
  id: string,
  options?: CallOptions,
): Promise<CommandInfo | undefined> {
  return (await guest.commands(options)).find((command) => command.id === id);
}

export type GuestAnswer =
  | { kind: 'ended'; end: CommandEnd }
  /** The guest does not have the command. */
  | { kind: 'unknown' }
  /** The command ran when the connection ended. */
  | { kind: 'running' }
  /** The guest did not answer. */
  | { kind: 'unreachable' };

/** Follows a command in the guest to its end, for as long as there is a connection. */
export async function followInGuest(
  connect: ConnectGuest,
  sandbox: SandboxId,
  command: string,
  options: Required<CallOptions>,
): Promise<GuestAnswer> {
  try {
    const guest = await connect(sandbox, options);
    const info = await commandInGuest(guest, command, options);
    if (!info) return { kind: 'unknown' };
    if (info.end) return { kind: 'ended', end: info.end };
    await using handle = await guest.attach(command, { offset: info.outputBytes, ...options });
    // The handle gives the end only after the output was read.
    for await (const chunk of handle.output) void chunk;
    const end = await handle.ended;
    return end.kind === 'lost' ? { kind: 'running' } : { kind: 'ended', end };
  } catch (error) {
    if (!isCayError(error)) throw error;
    return { kind: isCayError(error, 'not_found') ? 'unknown' : 'unreachable' };
  }
}
