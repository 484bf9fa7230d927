/**
 * The platforms of a router: backends by name, each opened when it can be.
 *
 * One that is away when it is to be opened is tried again, by whoever needs it and every few seconds;
 * anything else that goes wrong then is a fault of the configuration, and told at once.
 */
import { CayError, isCayError, type SandboxSpec } from '@cay/sdk/protocol';
import { Broadcast } from '../../lib/broadcast.ts';
import { withTimeout } from '../../lib/timeout.ts';
import { isAway, type Backend, type Observation } from '../backend.ts';
import { passOn } from '../support/forward-observations.ts';

export interface PlatformSource {
  name: string;
  /** Rejects `unavailable` while it is away. */
  open(): Promise<Backend>;
}

export interface Platforms {
  /** The default first. */
  readonly names: readonly string[];
  readonly first: string;
  /** What happens on any of them. */
  readonly changes: Broadcast<Observation>;
  /** Rejects `unavailable` while it cannot be opened, `not_found` for a name that is none. */
  get(name: string): Promise<Backend>;
  /** What is open already. */
  opened(name: string): Backend | undefined;
  /** Asks each, all at once; those that are away answer with why. */
  each<T>(
    ask: (backend: Backend, name: string) => Promise<T>,
  ): Promise<({ name: string } & ({ answer: T } | { away: CayError }))[]>;
  /** Throws `not_found` for a name that is none. */
  require(name: string): string;
  close(): Promise<void>;
}

const AGAIN_MS = 5_000;
/** Who takes longer is away. What a backend finds out only once may be slow. */
const ANSWER_MS = 30_000;

export async function openPlatforms(
  sources: readonly PlatformSource[],
  onError: (error: unknown) => void,
): Promise<Platforms> {
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
    const pump = passOn(backend, changes, { signal: closing.signal, onError }).finally(() =>
      pumps.delete(pump),
    );
    pumps.add(pump);
  }

  const platforms: Platforms = {
    names,
    first: names[0]!,
    changes,

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

    opened: (name) => open.get(name),

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
        hint: `Known platforms: ${names.join(', ')}`,
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

/** The spec as the platform's backend has it, which knows of no others. */
export function ownSpec({ platform: _platform, ...spec }: SandboxSpec): SandboxSpec {
  return spec;
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
