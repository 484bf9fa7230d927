/**
 * The link to the guest of one incarnation of a sandbox. It outlives connections.
 *
 * The owner of the guest's connections (a listener, a `docker exec`) hands each one to `adopt`; the newest
 * replaces the one before. Calls on `guest` wait up to `waitMs` for a connection. Running commands continue
 * on the next connection if the guest still has the same `boot`, and so do watches; a file watch reports
 * `overflow` for changes it has missed. Every other call that is in progress when a connection ends rejects
 * with `unavailable`.
 *
 * States:
 *
 *     open ── quiesce() ──▶ quiesced ── resume() ──▶ open
 *       └───── close() ─────────┴──────▶ closed          (final)
 *
 * In `open` there may or may not be a connection. In `quiesced` new calls wait and a lost connection is not
 * reported.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { CayError } from '@cay/sdk/protocol';
import { guestCommands } from './commands.ts';
import { guestFiles } from './files.ts';
import type { AttachedCommand } from './command-handle.ts';
import type { CallOptions, Guest } from './guest.ts';
import type { GuestClient } from './guest-client.ts';
import { guestPorts } from './ports.ts';
import { guestTool } from './tool.ts';
import { ResumingCommand } from './resuming-command.ts';
import { cancelled } from './stream.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';
import { unlessAborted } from '../lib/timeout.ts';

export interface GuestLinkOptions {
  sandbox: string;
  /** The name of the sandbox in errors, if it changes. */
  called?: () => string;
  /** How long a call waits for a connection. Default 5,000. */
  waitMs?: number;
  /** Called with each new connection. */
  onChange?: (client: GuestClient) => void;
  /** Called when the connection was lost and no other has replaced it. Not called while quiesced. */
  onLost?: (error: CayError) => void;
}

export interface ReadyOptions extends CallOptions {
  /** Absent: wait until the link is closed. */
  timeoutMs?: number;
}

export interface GuestLink {
  readonly guest: Guest;
  readonly current: GuestClient | undefined;
  /** Resolves with the connection. Rejects `unavailable` after the timeout, and when the link is closed. */
  ready(options?: ReadyOptions): Promise<GuestClient>;
  adopt(client: GuestClient): void;
  /**
   * Waits up to `drainMs` for calls in progress, then asks the guest to hang up. New calls wait. Resolves,
   * when the guest has hung up, with a `resume` function that lets them continue. Call it before quiescing
   * again. Running commands continue on the next connection.
   */
  quiesce(options: QuiesceOptions, beforeHangup?: () => Promise<void>): Promise<() => void>;
  /** Closes the link for good. Waiting calls reject with `unavailable`, commands end as `lost`. */
  close(reason?: string): void;
}

export interface QuiesceOptions {
  /** How long calls in progress may take. */
  drainMs: number;
  /** The guest dials again after this time at the earliest. */
  dialAfterMs: number;
}

type State =
  | { name: 'open' }
  | { name: 'quiesced'; resumed: PromiseWithResolvers<void> }
  | { name: 'closed'; error: CayError };

/** A call that waits for a connection. */
interface Waiter {
  resolve(client: GuestClient): void;
  reject(error: CayError): void;
}

export function guestLink(options: GuestLinkOptions): GuestLink {
  const { sandbox, called = () => sandbox, waitMs = 5_000, onChange, onLost } = options;
  let state: State = { name: 'open' };
  let client: GuestClient | undefined;
  const waiters = new Set<Waiter>();

  const current = () => (client?.connection.error ? undefined : client);

  const ready = ({ signal, timeoutMs }: ReadyOptions = {}): Promise<GuestClient> => {
    if (signal?.aborted) return Promise.reject(cancelled(signal));
    if (state.name === 'closed') return Promise.reject(state.error);
    const now = state.name === 'open' ? current() : undefined;
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
    const now = state.name === 'open' ? current() : undefined;
    return now ? now.connection : reachLater(call);
  };

  /** The timeout starts when the link is no longer quiesced. */
  const reachLater = async (call?: CallOptions) => {
    while (state.name === 'quiesced') await unlessAborted(state.resumed.promise, call?.signal, cancelled);
    return (await ready({ signal: call?.signal, timeoutMs: waitMs })).connection;
  };

  /** Attaches to a command again on the next connection, if that is to the same boot of the guest. */
  const attachAgain = (boot: string, call?: CallOptions) => async (last: AttachedCommand) => {
    for (;;) {
      const one = await ready({ signal: call?.signal });
      if (one.hello.boot !== boot) {
        throw new CayError(
          'unavailable',
          `Command "${last.id}" is lost: sandbox "${called()}" was restarted`,
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
    tool: (user, request, call) => guestTool(reach, user, request, call),
    ports: guestPorts(reach),
  };

  return {
    guest,
    get current() {
      return current();
    },
    ready,
    adopt(next) {
      if (state.name === 'closed') return next.close(state.error.message);
      const previous = client;
      client = next;
      const lost = next.closed.then(() => {
        if (client !== next) return;
        client = undefined;
        if (state.name === 'open') onLost?.(next.connection.error as CayError); // set before `closed` resolves
      });
      inBackground(lost, ignoreFailure);
      previous?.close('the guest has reconnected');
      for (const waiter of [...waiters]) waiter.resolve(next);
      onChange?.(next);
    },
    async quiesce({ drainMs, dialAfterMs }, beforeHangup) {
      const quiesced: State = { name: 'quiesced', resumed: Promise.withResolvers() };
      const previous = state;
      if (previous.name !== 'closed') state = quiesced;
      // Calls that wait for the end of an earlier quiesce wait for the end of this one.
      if (previous.name === 'quiesced') previous.resumed.resolve();
      // A call that was given the connection just now opens its stream before we look.
      await nextTurn();
      await current()?.connection.whenIdle(drainMs);
      await beforeHangup?.();
      await current()?.hangup(dialAfterMs);
      return () => {
        if (state !== quiesced) return;
        state = { name: 'open' };
        quiesced.resumed.resolve();
        const now = current();
        if (now) for (const waiter of [...waiters]) waiter.resolve(now);
      };
    },
    close(reason = 'it was closed') {
      if (state.name === 'closed') return;
      const error = new CayError(
        'unavailable',
        `The guest of sandbox "${called()}" cannot be reached: ${reason}`,
      );
      const previous = state;
      state = { name: 'closed', error };
      for (const waiter of [...waiters]) waiter.reject(error);
      client?.close(reason);
      if (previous.name === 'quiesced') previous.resumed.resolve();
    },
  };
}

function absent(sandbox: string, timeoutMs: number): CayError {
  return new CayError(
    'unavailable',
    `The guest of sandbox "${sandbox}" did not connect within ${timeoutMs} ms`,
  );
}
