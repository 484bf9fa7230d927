import { setImmediate as nextTurn } from 'node:timers/promises';

/** Items sorted at once, which takes some milliseconds. */
const RUN = 4096;

/** A stable sort like `Array.sort` that yields to other work in between: at each `pause`. */
export async function sortInTurns<T>(
  items: readonly T[],
  compare: (a: T, b: T) => number,
  pause: () => Promise<void> = nextTurn,
): Promise<T[]> {
  if (items.length <= RUN) return items.toSorted(compare);
  let runs: T[][] = [];
  for (let at = 0; at < items.length; at += RUN) {
    runs.push(items.slice(at, at + RUN).sort(compare));
    await pause();
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let at = 0; at < runs.length; at += 2)
      merged.push(await merge(runs[at]!, runs[at + 1] ?? [], compare, pause));
    runs = merged;
  }
  return runs[0]!;
}

async function merge<T>(
  one: T[],
  other: T[],
  compare: (a: T, b: T) => number,
  pause: () => Promise<void>,
): Promise<T[]> {
  const all: T[] = [];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    const fromOther = i === one.length || (j < other.length && compare(other[j]!, one[i]!) < 0);
    all.push(fromOther ? other[j++]! : one[i++]!);
    if (all.length % RUN === 0) await pause();
  }
  return all;
}
