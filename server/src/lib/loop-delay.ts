import { monitorEventLoopDelay } from 'node:perf_hooks';

/** Measures the delay of the event loop. */
export interface LoopDelay {
  /**
   * At this percentile, in the current stretch of time and the one before, whichever was worse. Reading it
   * changes nothing.
   */
  delayMs(percentile: number): number;
  close(): void;
}

const PERCENTILES = [50, 99] as const;

export function openLoopDelay({
  resolutionMs,
  windowMs = 30_000,
}: {
  resolutionMs: number;
  windowMs?: number;
}): LoopDelay {
  const histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  histogram.enable();
  let before = new Map<number, number>();
  // The histogram counts its own resolution in, and has no percentile before its first turn.
  const read = (percentile: number) =>
    Math.max(0, (histogram.percentile(percentile) || 0) / 1e6 - resolutionMs);
  const timer = setInterval(() => {
    before = new Map(PERCENTILES.map((percentile) => [percentile, read(percentile)]));
    histogram.reset();
  }, windowMs).unref();
  return {
    delayMs: (percentile) => Math.max(read(percentile), before.get(percentile) ?? 0),
    close() {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
