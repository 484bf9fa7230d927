/**
 * Makes room by putting sandboxes to rest that nobody uses, those of the project that takes most first, and
 * of these the longest unused: frozen while things are tight, so that they take no more, and hibernated when
 * they are very tight, so that they give back what they have. One after the other, and only until the next
 * look shows that it was enough.
 */
import type { Level } from './gauge.ts';

export interface Candidate {
  id: string;
  /** For how long nobody has used it. */
  idleMs: number;
  /** How much its project takes of what there is too little of. */
  share: number;
  /** Nothing of it runs already. */
  frozen: boolean;
  hibernates: boolean;
}

export interface Reclaim {
  /**
   * Puts some to rest if that helps at this level. Resolves to which; those under way are not taken up twice.
   */
  relieve(level: Level): Promise<string[]>;
}

export interface ReclaimOptions {
  /** Sandboxes in memory that nobody uses right now. */
  candidates(): Promise<Candidate[]>;
  freeze(id: string): Promise<void>;
  hibernate(id: string): Promise<void>;
  /** How long one must not have been used. Default 30 s. */
  unusedMs?: number;
  onError(error: unknown): void;
}

const AT_ONCE = { warn: 4, critical: 2 } as const;
const UNUSED_MS = 30_000;

/** Those of the project that takes most first, then the longest unused. */
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
    const idleDetector = (await candidates())
      .filter(({ idleMs }) => idleMs >= unusedMs)
      .filter(({ frozen, hibernates }) => (level === 'warn' ? !frozen : hibernates || !frozen))
      .sort(byShare)
      .slice(0, AT_ONCE[level]);
    const done: string[] = [];
    for (const { id, hibernates } of idleDetector) {
      try {
        await (level === 'critical' && hibernates ? hibernate(id) : freeze(id));
        done.push(id);
      } catch (error) {
        // One that cannot be put to rest, or is used again by now, does not keep the others awake.
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
