/** Times a task again and again, one after the other. */
export interface Series {
  p50: number;
  p99: number;
  n: number;
}

export async function measure(
  times: number,
  task: (index: number) => Promise<void>,
  options: { warmUp?: number } = {},
): Promise<Series> {
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
  const at = (share: number) =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99), n: sorted.length };
}

/**
 * Times several tasks in turn, so that a machine that is busy for a while is so for all of them. A task may
 * say itself how long it took, which leaves out what it does besides.
 */
export async function interleaved<Name extends string>(
  times: number,
  tasks: Record<Name, () => Promise<number | void>>,
  options: { warmUp?: number } = {},
): Promise<Record<Name, Series>> {
  const names = Object.keys(tasks) as Name[];
  const samples = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<Name, number[]>;
  for (let index = -(options.warmUp ?? 1); index < times; index++) {
    for (const name of names) {
      const start = performance.now();
      const tookMs = (await tasks[name]()) ?? performance.now() - start;
      if (index >= 0) samples[name].push(tookMs);
    }
  }
  return Object.fromEntries(names.map((name) => [name, series(samples[name])])) as Record<Name, Series>;
}
