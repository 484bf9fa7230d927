import type { TrustAuthority } from '../egress/trust-authority.ts';
import type { SandboxId } from '@cay/sdk/protocol';
import type { Observation } from '../../backends/backend.ts';
import type { Guest } from '../../guest/guest.ts';
import type { EventRecords } from '../../records/events/events.ts';
import type { PortRecord, SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { SandboxRecords } from '../../records/tables/sandboxes.ts';
import type { Principal } from '../tenants/principal.ts';
import type { ConnectGuest } from './ask-guest.ts';
import { commandAudit } from './command-audit.ts';
import type { CommandKeys } from './command-keys.ts';
import type { CommandLogs } from './command-logs.ts';
import type { CommandVerbs } from './command.ts';
import { findVerbs } from './find-commands.ts';
import { sandboxStatus } from './sandbox-status.ts';
import { startVerb } from './start-command.ts';
import { waitVerb } from './wait-for-end.ts';
import { endWatch } from './watch-end.ts';

/** What commands need of the rest of the control plane. */
export interface CommandParts {
  /** A sandbox by id or name. Rejects `not_found`. */
  find(principal: Principal, ref: string): Promise<SandboxRow>;
  /** The guest of a sandbox, which is woken if it is paused; its calls count as use. */
  enter(principal: Principal, ref: string): Promise<{ guest: Guest; row: SandboxRow }>;
  connect: ConnectGuest;
  /** What the platform says of a sandbox. */
  observe(id: SandboxId, call: { signal: AbortSignal }): Promise<Pick<Observation, 'pod'>>;
  /** Counts a client of the sandbox until it is disposed of. Wakes nothing. */
  attend(id: SandboxId): Disposable;
  expose(principal: Principal, ref: string, port: PortRecord): Promise<unknown>;
  sandboxes: Pick<SandboxRecords, 'get'>;
  events: Pick<EventRecords, 'append' | 'listen'>;
  keys: CommandKeys;
  logs: CommandLogs;
  /** Variables by which programs trust what the server shows them on HTTPS. */
  trust: TrustAuthority;
  /** Called with the time that the guest took to start a command, the wake included. */
  onStarted(seconds: number): void;
  onError(error: unknown): void;
}

export function openCommands(parts: CommandParts): CommandVerbs {
  const { find, connect, sandboxes, events } = parts;
  const audit = commandAudit(events);
  const watchEnd = endWatch({ connect, sandboxes, audit, onError: parts.onError });
  const start = startVerb({ ...parts, audit, watchEnd });
  return {
    ...findVerbs(parts),
    async start(...call) {
      const from = performance.now();
      const started = await start(...call);
      parts.onStarted((performance.now() - from) / 1000);
      return started;
    },
    wait: waitVerb(parts),
    status: async (principal, ref) => sandboxStatus(await find(principal, ref), parts),
  };
}
