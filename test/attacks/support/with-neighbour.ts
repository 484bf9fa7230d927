import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Latencies, NeighbourOptions } from './neighbour.ts';
import type { Target } from './target.ts';

/** How long Bob's calls take while Alice attacks, measured by a process of its own. */
export async function withNeighbour(
  target: Target,
  sandbox: string,
  attack: () => Promise<void>,
): Promise<Latencies> {
  const options: NeighbourOptions = { url: target.url, key: target.bob.key, sandbox };
  const neighbour = fork(join(import.meta.dirname, 'neighbour.ts'), [JSON.stringify(options)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const measured = async () => {
    const answer = once(neighbour, 'message');
    neighbour.send('tell');
    return ((await answer) as [Latencies])[0];
  };
  try {
    await once(neighbour, 'spawn');
    // What was measured while it started does not count.
    await measured();
    await attack();
    return await measured();
  } finally {
    neighbour.kill();
  }
}

export function percentile(samples: readonly number[], part: number): number {
  const sorted = samples.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Infinity;
}
