/**
 * How much of pulling each project does at once, so that one with slow registries does not hold up another.
 */
import { CayError } from '@cay/sdk/protocol';
import { Semaphore } from '../../lib/semaphore.ts';

/** Pulls of one project that run at once, and those that wait for them. */
const PULLS = 4;
const MOST_WAITING = 28;
/** Layers that one project fetches at once. */
const FETCHES = 4;

export interface PullTurns {
  /** Runs a pull when it is its turn. Rejects `resource_exhausted` if too many wait. */
  run<T>(project: string | undefined, pull: (fetches: Semaphore) => Promise<T>): Promise<T>;
}

export function pullTurns(): PullTurns {
  const projects = new Map<string, { pulls: Semaphore; fetches: Semaphore; count: number }>();
  return {
    async run(project = '', pull) {
      const turns = projects.get(project) ?? {
        pulls: new Semaphore(PULLS),
        fetches: new Semaphore(FETCHES),
        count: 0,
      };
      const most = PULLS + MOST_WAITING;
      if (turns.count >= most)
        throw new CayError(
          'resource_exhausted',
          `The project has ${most} pulls under way, which is the most`,
          {
            details: { budget: 'pulls', used: turns.count, limit: most, retryAfterMs: 1000 },
            hint: 'wait for some of them to end',
          },
        );
      turns.count++;
      projects.set(project, turns);
      try {
        return await turns.pulls.run(() => pull(turns.fetches));
      } finally {
        if (--turns.count === 0) projects.delete(project);
      }
    },
  };
}
