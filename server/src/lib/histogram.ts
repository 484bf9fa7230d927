/** Counts of observed values by upper bounds, as Prometheus' histograms have them. */
export interface Histogram {
  observe(value: number): void;
  snapshot(): HistogramSnapshot;
}

export interface HistogramSnapshot {
  /** Number of values up to each bound, cumulative. */
  buckets: { bound: number; count: number }[];
  sum: number;
  count: number;
}

/** Seconds, from a millisecond to a minute. */
export const SECONDS_BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60];

export function openHistogram(bounds: readonly number[] = SECONDS_BOUNDS): Histogram {
  const counts = bounds.map(() => 0);
  let sum = 0;
  let count = 0;
  return {
    observe(value) {
      sum += value;
      count++;
      const index = bounds.findIndex((bound) => value <= bound);
      if (index >= 0) counts[index]!++;
    },
    snapshot() {
      let below = 0;
      const buckets = bounds.map((bound, index) => ({ bound, count: (below += counts[index]!) }));
      return { buckets, sum, count };
    },
  };
}
