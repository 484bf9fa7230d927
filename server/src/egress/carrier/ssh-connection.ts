import type { OpenAttempt } from '../attempts.ts';
import type { SandboxEgress } from '../sandbox-egress.ts';
import type { SshConnection, SshPut } from '../ssh/ssh-proxy.ts';
import type { ConnectionTarget } from './addresses.ts';
import type { Meter } from './budget.ts';
import { Denial } from './denial.ts';
import type { Engine } from './engine.ts';

/** What a connection that an SSH key is put on does of its own. */
export interface SshCarrier extends Pick<SshConnection, 'dial' | 'end'> {
  readonly target: ConnectionTarget;
  readonly meter: Meter;
  /** Takes the record of the connection back: its commands are recorded in its place. */
  withdraw(): void;
  pinned(): string | null;
  finish(attempt: OpenAttempt, denial: Denial | undefined): void;
  touch(): void;
}

/** Throws a `Denial` if the key is not there. */
export function sshConnection(
  engine: Engine,
  sandbox: SandboxEgress,
  put: SshPut,
  { target, meter, withdraw, pinned, finish, touch, dial, end }: SshCarrier,
): SshConnection {
  const { name, port, process = null } = target;
  const key = engine.secrets(sandbox.id).find((secret) => secret.name === put.secret)?.value;
  if (!engine.ssh || key === undefined || name === undefined)
    throw new Denial('secret', `The SSH key "${put.secret}" of the rule is not set`);
  return {
    name,
    put,
    key,
    dial,
    begin(method, path) {
      withdraw();
      const facts = { name, address: pinned(), port, protocol: 'ssh' as const, method, path, process };
      const attempt = sandbox.attempts.begin(facts, meter.bytes);
      return (denial) => {
        attempt.update({ address: pinned() });
        finish(attempt, denial);
      };
    },
    spend(direction, chunk) {
      touch();
      return meter.spend(direction, chunk.length);
    },
    end,
  };
}
