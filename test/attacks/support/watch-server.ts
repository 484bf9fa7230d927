import type { Target } from './target.ts';

export interface Watched {
  /** How late the event loop of the server was, at the 99th percentile. */
  loopMs: number;
  /** The slowest of the answers to a neighbour's `/healthz`. */
  slowestMs: number;
  /** The most resident memory that the server had, and how much of it is above what it had before. */
  rssBytes: number;
  grownBytes: number;
}

const EVERY_MS = 25;

/**
 * Looks at the server while it is attacked: at its memory, its event loop, and how long a neighbour waits.
 */
export async function watchServer(target: Target, attack: () => Promise<void>): Promise<Watched> {
  const before = target.rssBytes();
  // Reading the delay of the event loop resets it.
  await target.admin.call('GET', '/v1/health');
  let over = false;
  let rssBytes = before;
  let slowestMs = 0;
  const neighbour = (async () => {
    while (!over) {
      const startedAt = performance.now();
      await target.stranger('GET', '/healthz');
      slowestMs = Math.max(slowestMs, performance.now() - startedAt);
      rssBytes = Math.max(rssBytes, target.rssBytes());
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  })();
  try {
    await attack();
  } finally {
    over = true;
    await neighbour;
  }
  const { json } = await target.admin.call('GET', '/v1/health');
  const watched = {
    loopMs: json.eventLoopDelayMs as number,
    slowestMs,
    rssBytes,
    grownBytes: rssBytes - before,
  };
  if (process.env['CAY_ATTACK_FIGURES'] !== undefined) {
    const MiB = (bytes: number) => `${Math.round(bytes / 1024 ** 2)} MiB`;
    console.info(
      `loop ${watched.loopMs.toFixed(0)} ms, /healthz ${slowestMs.toFixed(0)} ms, RSS ${MiB(rssBytes)} (+${MiB(watched.grownBytes)})`,
    );
  }
  return watched;
}
