/** Times a task again and again, one after the other. */
export interface Series {
  p50: number;
  p99: number;
  n: number;
}

export async function measure(times: number, task: (index: number) => Promise<void>, options: { warmUp?: number } = {}): Promise<Series> {
  const samples: number[] = [];
  for (let index = -(options.warmUp ?? 2); index < times; index++) {
    const start = performance.now();
    await task(index);
    if (index >= 0) samples.push(performance.now() - start);
  }
  return series(samples);
}

export function series(samples: number[]): Series {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99), n: sorted.length };
}
