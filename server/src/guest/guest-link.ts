/**
 * The link to the guest of one incarnation of a sandbox, which outlives connections.
 *
 * Whoever has the guest's connections (a listener, a `docker exec`) hands each to `adopt`; the newest wins.
 * The Guest that the link offers waits a while for a connection when there is none. Commands that run go on
 * across connections as long as the guest is the one they were started in, and so do watches, of files with
 * an `overflow` for what they have missed; every other call that is under way when a connection ends rejects
 * with `unavailable`.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CayError } from '@cay/sdk/protocol';
import { guestCommands } from './commands.ts';
import { guestFiles } from './files.ts';
import type { AttachedCommand } from './command-handle.ts';
import type { CallOptions, Guest } from './guest.ts';
import type { GuestClient } from './guest-client.ts';
import { guestPorts } from './ports.ts';
import { ResumingCommand } from './resuming-command.ts';
import { cancelled } from './stream.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';
import { unlessAborted } from '../lib/timeout.ts';

export interface GuestLinkOptions {
  sandbox: string;
  /** What errors call it, if that is another name by now. */
  called?: () => string;
  /** How long a call waits for a connection. Default 5,000. */
  waitMs?: number;
  /** A connection was made, or took the place of another. */
  onChange?: (client: GuestClient) => void;
  /** The connection ended and no other has taken its place. */
  onLost?: (error: CayError) => void;
}

export interface ReadyOptions extends CallOptions {
  /** Absent: as long as the link is open. */
  timeoutMs?: number;
}

export interface GuestLink {
  readonly guest: Guest;
  readonly current: GuestClient | undefined;
  /**
   * Resolves when there is a connection. Rejects `unavailable` after the timeout or when the link is closed.
   */
  ready(options?: ReadyOptions): Promise<GuestClient>;
  adopt(client: GuestClient): void;
  /**
   * Lets calls that are under way finish, for a while, and has the guest hang up; calls that begin meanwhile
   * wait. Resolves when the guest has hung up, with what lets them go on, which is to be called before the
   * next `quiesce`. Commands go on with the next connection, as always.
   */
  quiesce(options: QuiesceOptions, beforeHangup?: () => Promise<void>): Promise<() => void>;
  /** Closes the connection for good: what waits rejects, what runs is lost. */
  close(reason?: string): void;
}

export interface QuiesceOptions {
  /** How long calls that are under way may take. */
  drainMs: number;
  /** When the guest dials again at the earliest. */
  dialAfterMs: number;
}

interface Waiter {
  resolve(client: GuestClient): void;
  reject(error: CayError): void;
}

export function guestLink(options: GuestLinkOptions): GuestLink {
  const { sandbox, called = () => sandbox, waitMs = 5_000, onChange, onLost } = options;
  let client: GuestClient | undefined;
  let closed: CayError | undefined;
  const waiters = new Set<Waiter>();
  /** Settles when calls may begin again; absent while they may. */
  let quiesced: Promise<void> | undefined;
  let loud = () => {};

  const current = () => (client?.connection.error ? undefined : client);

  const ready = ({ signal, timeoutMs }: ReadyOptions = {}): Promise<GuestClient> => {
    if (signal?.aborted) return Promise.reject(cancelled(signal));
    if (closed) return Promise.reject(closed);
    const now = quiesced ? undefined : current();
    if (now) return Promise.resolve(now);
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout | undefined;
      const done = () => {
        waiters.delete(waiter);
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
      };
      const waiter: Waiter = {
        resolve: (value) => (done(), resolve(value)),
        reject: (error) => (done(), reject(error)),
      };
      const aborted = () => waiter.reject(cancelled(signal));
      signal?.addEventListener('abort', aborted, { once: true });
      if (timeoutMs !== undefined)
        timer = setTimeout(() => waiter.reject(absent(called(), timeoutMs)), timeoutMs);
      waiters.add(waiter);
    });
  };

  const reach = (call?: CallOptions) => {
    const now = closed || quiesced ? undefined : current();
    return now ? now.connection : reachLater(call);
  };

  /** However long the guest is quiesced: the time to wait for it begins afterwards. */
  const reachLater = async (call?: CallOptions) => {
    while (quiesced) await unlessAborted(quiesced, call?.signal, cancelled);
    return (await ready({ signal: call?.signal, timeoutMs: waitMs })).connection;
  };

  /** Attaches to a command of the guest that has this boot, over whichever connection comes next. */
  const attachAgain = (boot: string, call?: CallOptions) => async (last: AttachedCommand) => {
    for (;;) {
      const one = await ready({ signal: call?.signal });
      if (one.hello.boot !== boot) {
        throw new CayError(
          'unavailable',
          `Command "${last.id}" is lost: sandbox "${called()}" was started anew`,
        );
      }
      try {
        return await one.attach(last.id, {
          signal: call?.signal,
          offset: last.position,
          takesInput: last.takesInput,
        });
      } catch (error) {
        if (!one.connection.error || call?.signal?.aborted) throw error;
      }
    }
  };

  const commands = guestCommands(reach);
  const resuming = async (attached: Promise<AttachedCommand>, call?: CallOptions) => {
    const first = await attached;
    return new ResumingCommand(first, attachAgain(first.boot, call));
  };

  const guest: Guest = {
    ...commands,
    exec: (request, call) => resuming(commands.exec(request, call), call),
    attach: (id, call) => resuming(commands.attach(id, call), call),
    files: (user) => guestFiles(reach, user),
    ports: guestPorts(reach),
  };

  return {
    guest,
    get current() {
      return current();
    },
    ready,
    adopt(next) {
      if (closed) return next.close(closed.message);
      const previous = client;
      client = next;
      const lost = next.closed.then(() => {
        if (client !== next) return;
        client = undefined;
        if (!closed && !quiesced) onLost?.(next.connection.error as CayError); // set before `closed` resolves
      });
      inBackground(lost, ignoreFailure);
      previous?.close('the guest has dialled anew');
      for (const waiter of [...waiters]) waiter.resolve(next);
      onChange?.(next);
    },
    async quiesce({ drainMs, dialAfterMs }, beforeHangup) {
      const { promise, resolve } = Promise.withResolvers<void>();
      quiesced = promise;
      loud = () => {
        quiesced = undefined;
        loud = () => {};
        resolve();
        const now = current();
        if (now) for (const waiter of [...waiters]) waiter.resolve(now);
      };
      const goOn = loud;
      // A call that was given the connection just now begins its stream before we look.
      await nextTurn();
      await current()?.connection.calm(drainMs);
      await beforeHangup?.();
      await current()?.hangup(dialAfterMs);
      return goOn;
    },
    close(reason = 'it was closed') {
      if (closed) return;
      closed = new CayError('unavailable', `The guest of sandbox "${called()}" cannot be reached: ${reason}`);
      for (const waiter of [...waiters]) waiter.reject(closed);
      client?.close(reason);
      loud();
    },
  };
}

function absent(sandbox: string, timeoutMs: number): CayError {
  return new CayError(
    'unavailable',
    `The guest of sandbox "${sandbox}" has not dialled within ${timeoutMs} ms`,
  );
}
