/**
 * Watches whose events wait until the client asks for them. A watch ends with the sandbox, with the server,
 * or when the client stops asking.
 */
import { randomBytes } from 'node:crypto';
import { CayError } from '@cay/sdk/protocol';
import { ignoreFailure, inBackground } from '../../../lib/in-background.ts';

export interface Watchers {
  /** Resolves with the id of the watch when it is in place. */
  open(sandbox: string, watch: (signal: AbortSignal) => Promise<AsyncIterable<unknown>>): Promise<string>;
  /** Events since the last call. Throws `not_found`, or the error that ended the watch. */
  take(sandbox: string, id: string): unknown[];
  /** Does nothing if there is no such watch. */
  close(sandbox: string, id: string): void;
}

interface Watcher {
  events: unknown[];
  failure: unknown;
  ending: AbortController;
  takenAtMs: number;
}

const MOST_PER_SANDBOX = 64;
const MOST_EVENTS = 10_000;
/** A watch that no client asks about for this long is closed. */
const FORGET_MS = 30 * 60_000;

export function openWatchers(now: () => number = Date.now): Watchers {
  const all = new Map<string, Map<string, Watcher>>();

  function close(sandbox: string, id: string): void {
    const own = all.get(sandbox);
    own?.get(id)?.ending.abort();
    own?.delete(id);
    if (own?.size === 0) all.delete(sandbox);
  }

  function sweep(): void {
    for (const [sandbox, own] of all) {
      for (const [id, { takenAtMs }] of own) if (now() - takenAtMs > FORGET_MS) close(sandbox, id);
    }
  }

  async function collect(
    sandbox: string,
    id: string,
    watcher: Watcher,
    events: AsyncIterable<unknown>,
  ): Promise<void> {
    try {
      for await (const event of events) {
        if (watcher.events.length >= MOST_EVENTS)
          throw new CayError('resource_exhausted', 'More events came than are kept for a watcher');
        watcher.events.push(event);
      }
      // The directory or the sandbox was removed.
      watcher.failure = new CayError('not_found', `watcher with id ${id} not found`);
    } catch (error) {
      watcher.failure = error;
      if (!all.get(sandbox)?.has(id)) return;
    }
    watcher.ending.abort();
  }

  return {
    async open(sandbox, watch) {
      sweep();
      const own = all.get(sandbox) ?? new Map<string, Watcher>();
      if (own.size >= MOST_PER_SANDBOX) {
        throw new CayError('resource_exhausted', `A sandbox has at most ${MOST_PER_SANDBOX} watchers`, {
          hint: 'stop watches that are not read',
        });
      }
      const id = `w${randomBytes(12).toString('hex')}`;
      const watcher: Watcher = {
        events: [],
        failure: undefined,
        ending: new AbortController(),
        takenAtMs: now(),
      };
      own.set(id, watcher);
      all.set(sandbox, own);
      try {
        const changes = await watch(watcher.ending.signal);
        inBackground(collect(sandbox, id, watcher, changes), ignoreFailure);
      } catch (error) {
        close(sandbox, id);
        throw error;
      }
      return id;
    },
    take(sandbox, id) {
      const watcher = all.get(sandbox)?.get(id);
      if (!watcher) throw new CayError('not_found', `watcher with id ${id.slice(0, 40)} not found`);
      watcher.takenAtMs = now();
      const events = watcher.events;
      watcher.events = [];
      if (events.length === 0 && watcher.failure !== undefined) {
        close(sandbox, id);
        throw watcher.failure;
      }
      return events;
    },
    close,
  };
}
