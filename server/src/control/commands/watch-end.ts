import type { CommandEnd, SandboxId } from '@cay/sdk/protocol';
import { isCayError } from '@cay/sdk/protocol';
import { inBackground } from '../../lib/in-background.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SandboxRecords } from '../../records/tables/sandboxes.ts';
import { commandInGuest, type ConnectGuest } from './ask-guest.ts';
import type { CommandAudit } from './command-audit.ts';
import { FORGOTTEN_END, hasEnded, lostWith } from './lost-end.ts';

const FIRST_MS = 1000;
const LONGEST_MS = 30_000;
/** Bounds what callers that connect and disconnect can make the server watch. */
const MAX_WATCHED = 1000;

export interface EndWatchOptions {
  connect: ConnectGuest;
  sandboxes: Pick<SandboxRecords, 'get'>;
  audit: Pick<CommandAudit, 'ended'>;
  onError(error: unknown): void;
}

/** Starts to watch one command. `key` is the caller's, for the event. */
export type WatchEnd = (key: string | null, row: Pick<SandboxRow, 'id' | 'project'>, command: string) => void;

/**
 * Writes the event `command.ended` of commands that are not recorded and whose caller disconnected. Polls the
 * guest, which remembers ended commands for a while, and does not wake the sandbox.
 */
export function endWatch({ connect, sandboxes, audit, onError }: EndWatchOptions): WatchEnd {
  let watched = 0;

  /** The end, `running`, or `gone` if the sandbox was removed, which is an event of its own. */
  async function look(id: SandboxId, command: string): Promise<CommandEnd | 'running' | 'gone'> {
    const row = await sandboxes.get(id);
    if (!row) return 'gone';
    if (hasEnded(row)) return lostWith(row);
    if (row.state !== 'active') return 'running';
    const info = await commandInGuest(await connect(id), command);
    return info ? (info.end ?? 'running') : FORGOTTEN_END;
  }

  return (key, { id, project }, command) => {
    if (watched >= MAX_WATCHED) return;
    watched++;
    const later = (waitMs: number) => {
      setTimeout(() => {
        look(id, command).then(
          (found) => {
            if (found === 'running') return later(Math.min(waitMs * 2, LONGEST_MS));
            watched--;
            if (found !== 'gone') inBackground(audit.ended(key, { id, project }, command, found), onError);
          },
          (error: unknown) => {
            // A guest that does not answer now may answer later. Anything else means that records are closed.
            if (isCayError(error) && error.code !== 'not_found') later(Math.min(waitMs * 2, LONGEST_MS));
            else watched--;
          },
        );
      }, waitMs).unref();
    };
    later(FIRST_MS);
  };
}
