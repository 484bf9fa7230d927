/**
 * Makes room by pausing unused sandboxes: those of the project that takes most first, and of these the
 * longest unused. At `warn` they are frozen, so that they take no more; at `critical` they are hibernated, so
 * that they give back their memory. A few at a time: the next measurement shows whether that was enough.
 */
import type { Level } from './gauge.ts';

export interface Candidate {
  id: string;
  /** How long it has been unused. */
  idleMs: number;
  /** How much its project takes of the resource that is short. */
  share: number;
  /** It is frozen already. */
  frozen: boolean;
  hibernates: boolean;
}

export interface Reclaim {
  /**
   * Pauses some sandboxes if that helps at this level. Resolves their ids. Calls at the same time share one
   * run.
   */
  relieve(level: Level): Promise<string[]>;
}

export interface ReclaimOptions {
  /** Unused sandboxes in memory. */
  candidates(): Promise<Candidate[]>;
  freeze(id: string): Promise<void>;
  hibernate(id: string): Promise<void>;
  /** How long a sandbox must have been unused. Default 30 s. */
  unusedMs?: number;
  onError(error: unknown): void;
}

const AT_ONCE = { warn: 4, critical: 2 } as const;
const UNUSED_MS = 30_000;

/** The project that takes most first, then the longest unused. */
export function byShare(
  one: Pick<Candidate, 'share' | 'idleMs'>,
  other: Pick<Candidate, 'share' | 'idleMs'>,
): number {
  return other.share - one.share || other.idleMs - one.idleMs;
}

export function openReclaim({
  candidates,
  freeze,
  hibernate,
  unusedMs = UNUSED_MS,
  onError,
}: ReclaimOptions): Reclaim {
  let running: Promise<string[]> | undefined;

  async function relieve(level: Exclude<Level, 'ok'>): Promise<string[]> {
    const chosen = (await candidates())
      .filter(({ idleMs }) => idleMs >= unusedMs)
      .filter(({ frozen, hibernates }) => (level === 'warn' ? !frozen : hibernates || !frozen))
      .sort(byShare)
      .slice(0, AT_ONCE[level]);
    const done: string[] = [];
    for (const { id, hibernates } of chosen) {
      try {
        await (level === 'critical' && hibernates ? hibernate(id) : freeze(id));
        done.push(id);
      } catch (error) {
        // A sandbox that cannot be paused, or is in use again, does not keep the others from it.
        onError(error);
      }
    }
    return done;
  }

  return {
    relieve(level) {
      if (level === 'ok') return Promise.resolve([]);
      return (running ??= relieve(level).finally(() => (running = undefined)));
    },
  };
}
