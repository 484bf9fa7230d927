import { Semaphore } from '../../lib/semaphore.ts';

export interface TransferTurns {
  /** Runs the transfer when it is its turn. */
  run<T>(project: string, transfer: () => Promise<T>): Promise<T>;
}

interface Turns {
  /** The one transfer that each project may have whatever others do. */
  own: Semaphore;
  hasSecond: boolean;
  users: number;
}

/**
 * Bounds how many transfers run at once. A project's first transfer waits for its own alone: the S3 servers
 * of others may be silent for hours. It has a second one while a place for that is free.
 */
export function transferTurns({ firsts = 64, seconds = 16 } = {}): TransferTurns {
  const all = new Semaphore(firsts);
  const projects = new Map<string, Turns>();
  let free = seconds;

  return {
    async run(project, transfer) {
      const turns = projects.get(project) ?? { own: new Semaphore(1), hasSecond: false, users: 0 };
      projects.set(project, turns);
      turns.users++;
      const isSecond = turns.users > 1 && !turns.hasSecond && free > 0;
      if (isSecond) {
        turns.hasSecond = true;
        free--;
      }
      try {
        return await (isSecond ? transfer() : turns.own.run(() => all.run(transfer)));
      } finally {
        if (isSecond) {
          turns.hasSecond = false;
          free++;
        }
        if (--turns.users === 0) projects.delete(project);
      }
    },
  };
}
