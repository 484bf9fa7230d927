/**
 * The platforms of a server: backends by name, each opened when it can be.
 *
 * A platform that is away is opened again when a verb needs it, and every few seconds. Any other failure to
 * open is a mistake in the configuration, and fails at once.
 */
import { CayError, isCayError } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import { withTimeout } from '../../lib/timeout.ts';
import { isAway, type Backend, type Observation } from '../backend.ts';
import { forwardObservations } from '../support/forward-observations.ts';
import type { Members } from './members.ts';

export interface PlatformSource {
  name: string;
  /** Rejects `unavailable` while it is away. */
  open(): Promise<Backend>;
}

export interface PlatformMembers extends Members {
  /** The default first. */
  readonly names: readonly string[];
  /** The backend of this platform, if it is open. */
  openedAs(name: string): Backend | undefined;
  /** Throws `not_found` for an unknown name. */
  require(name: string): string;
}

const AGAIN_MS = 5_000;
/** A platform that takes longer is away. The first answer may be slow. */
const ANSWER_MS = 30_000;

export async function openPlatformMembers(
  sources: readonly PlatformSource[],
  onError: (error: unknown) => void,
): Promise<PlatformMembers> {
  const names = sources.map(({ name }) => name);
  if (names.length === 0 || new Set(names).size < names.length) {
    throw new CayError(
      'invalid_argument',
      `Platforms must be at least one, each with a name of its own: ${JSON.stringify(names)}`,
    );
  }
  const open = new Map<string, Backend>();
  const opening = new Map<string, Promise<Backend>>();
  const failed = new Map<string, { error: unknown; atMs: number }>();
  const changes = new Broadcast<Observation>();
  const closing = new AbortController();
  const pumps = new Set<Promise<void>>();

  function start({ name, open: openIt }: PlatformSource): Promise<Backend> {
    let started = opening.get(name);
    if (!started) {
      started = openIt()
        .then(async (backend) => {
          if (closing.signal.aborted) await backend.close();
          else keep(name, backend);
          return backend;
        })
        .catch((error: unknown) => {
          failed.set(name, { error, atMs: performance.now() });
          throw error;
        })
        .finally(() => opening.delete(name));
      opening.set(name, started);
    }
    return started;
  }

  function keep(name: string, backend: Backend): void {
    open.set(name, backend);
    failed.delete(name);
    const pump = forwardObservations(backend, changes, { signal: closing.signal, onError }).finally(() =>
      pumps.delete(pump),
    );
    pumps.add(pump);
  }

  const platforms: PlatformMembers = {
    names,
    noun: 'platform',
    fallback: names[0]!,
    changes,

    target: ({ platform }) => (platform === undefined ? undefined : platforms.require(platform)),
    has: (name) => names.includes(name),
    label: (spec, platform) => ({ ...spec, platform }),

    async get(name) {
      platforms.require(name);
      const backend = open.get(name);
      if (backend) return backend;
      if (closing.signal.aborted) throw new CayError('unavailable', `Platform "${name}" is closed`);
      const last = failed.get(name);
      if (last && !opening.has(name) && performance.now() - last.atMs < AGAIN_MS)
        throw awayOf(name, last.error);
      return start(sources.find((source) => source.name === name)!).catch((error: unknown) => {
        throw awayOf(name, error);
      });
    },

    openedAs: (name) => open.get(name),
    opened: () => ({ backends: [...open.values()], complete: open.size === names.length }),

    each: (ask) =>
      Promise.all(
        names.map(async (name) => {
          try {
            return {
              name,
              answer: await withTimeout(
                platforms.get(name).then((backend) => ask(backend, name)),
                ANSWER_MS,
                () => silent(name),
              ),
            };
          } catch (error) {
            if (!isAway(error)) throw error;
            return { name, away: error };
          }
        }),
      ),

    require(name) {
      if (names.includes(name)) return name;
      throw new CayError('not_found', `Platform "${String(name).slice(0, 64)}" is unknown`, {
        details: { what: 'platform' },
        hint: `known platforms: ${names.join(', ')}`,
      });
    },

    async close() {
      if (closing.signal.aborted) return;
      closing.abort();
      clearInterval(timer);
      changes.close();
      await Promise.allSettled(opening.values());
      const closed = await Promise.allSettled([...open.values()].map((backend) => backend.close()));
      await Promise.allSettled(pumps);
      for (const result of closed) if (result.status === 'rejected') throw result.reason;
    },
  };

  const timer = setInterval(() => {
    for (const name of names) if (!open.has(name)) platforms.get(name).catch(() => {});
  }, AGAIN_MS).unref();
  const first = await Promise.allSettled(sources.map(start));
  const wrong = first.find((result) => result.status === 'rejected' && !isAway(result.reason));
  if (wrong?.status === 'rejected') {
    await platforms.close().catch(onError);
    throw wrong.reason;
  }
  for (const result of first) if (result.status === 'rejected') onError(result.reason);
  return platforms;
}

const silent = (name: string) =>
  new CayError('unavailable', `Platform "${name}" has not answered for ${ANSWER_MS / 1000} s`);

function awayOf(name: string, error: unknown): CayError {
  const { message, hint, details } = isCayError(error)
    ? error
    : { message: String(error), hint: undefined, details: {} };
  return new CayError('unavailable', `Platform "${name}" cannot be reached: ${message}`, {
    cause: error,
    details: { ...details, platform: name },
    ...(hint !== undefined && { hint }),
  });
}
