import type { Target } from '../support/target.ts';

/**
 * One way in which a tenant, or a client without a key, takes as much of the server as it can get, while a
 * neighbour goes on working.
 */
export interface Assault {
  readonly name: string;
  /** Makes what it needs, and gives what goes on attacking until the signal is aborted. */
  open(target: Target): Promise<Attack>;
}

export interface Attack {
  run(signal: AbortSignal, done: () => void): Promise<void>;
}

/**
 * Works `width` times side by side until the signal is aborted. That an attack is refused is no reason to
 * stop.
 */
export async function again(width: number, signal: AbortSignal, work: () => Promise<unknown>): Promise<void> {
  const line = async () => {
    while (!signal.aborted) {
      await work().catch(() => {});
      // Others than this attack get their turn, whatever it is that was refused at once.
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await Promise.all(Array.from({ length: width }, line));
}
