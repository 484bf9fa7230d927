import type { SandboxId } from '@cay/sdk/protocol';
import type { Egress } from '../../egress/egress.ts';
import type { GuestLink } from '../../guest/guest-link.ts';
import type { Guest } from '../../guest/guest.ts';
import { redialling } from '../../guest/redialling-link.ts';
import { guestWithEnv, imageEnvOf } from '../support/image-env.ts';
import { requireAccountFiles } from './account-files.ts';
import { GUEST_PATH, SOCKET_PATH } from './container-config.ts';
import type { Containers, Found } from './containers.ts';
import type { DockerClient } from './docker-client.ts';
import { execStream } from './exec-stream.ts';

/** The connection to one guest. */
export interface GuestConnection {
  link: GuestLink;
  guest: Guest;
  /** What the guest said last; only it counts them. */
  oomKills: number;
}

/** The connections to the guests of running containers, at most one for each sandbox. */
export interface GuestConnections {
  get(id: SandboxId): GuestConnection | undefined;
  /**
   * Dials in the background if there is no connection yet. In a container that was just started no code of
   * the sandbox has run, so its account files are not checked before the first dial.
   */
  open(found: Found, options?: { justStarted?: boolean }): GuestConnection;
  /** A connection to a container that is not the sandbox's yet. */
  beside(found: Found): GuestConnection;
  /** From now on this is the sandbox's connection. The one that it had is closed. */
  replace(id: SandboxId, connection: GuestConnection, reason: string): void;
  hangUp(id: SandboxId, reason: string): void;
  close(): void;
}

/** A guest is reached through an exec that bridges its standard streams and the guest's socket. */
export function guestConnections(
  client: DockerClient,
  containers: Containers,
  egress: Egress | undefined,
): GuestConnections {
  const live = new Map<SandboxId, GuestConnection>();

  function hangUp(id: SandboxId, reason: string): void {
    live.get(id)?.link.close(reason);
    live.delete(id);
  }

  function connect({ container, name, inspect }: Found, justStarted: boolean): GuestConnection {
    const { id, incarnation } = name;
    const link = redialling({
      sandbox: id,
      incarnation,
      egress: egress && { egress, sandbox: () => id },
      async dial(signal) {
        const action = `reach the guest of sandbox "${id}"`;
        if (!justStarted) await requireAccountFiles(client, container, { action, signal });
        justStarted = false;
        return execStream(client, { container, argv: [GUEST_PATH, 'bridge', SOCKET_PATH], action, signal });
      },
      async whyGone() {
        const found = await containers.find(id);
        if (!found) return 'it was removed';
        if (found.container !== container || found.name.incarnation !== incarnation)
          return 'it was started again';
        return found.inspect.State.Running ? undefined : 'it is not running';
      },
    });
    const guest = guestWithEnv(link.guest, imageEnvOf(inspect.Config.Env ?? []));
    return { link, guest, oomKills: 0 };
  }

  return {
    get: (id) => live.get(id),

    open(found, { justStarted = false } = {}) {
      const { id } = found.name;
      const now = live.get(id);
      if (now) return now;
      const made = connect(found, justStarted);
      live.set(id, made);
      return made;
    },

    beside: (found) => connect(found, true),

    replace(id, connection, reason) {
      hangUp(id, reason);
      live.set(id, connection);
    },

    hangUp,

    close() {
      for (const id of live.keys()) hangUp(id, 'the server closed the connection');
    },
  };
}
