/**
 * Divides long work on the event loop into slices of about a millisecond. Each turn of the event loop runs
 * one slice, and the owners take turns: so neither one owner with many calls nor many owners delay short
 * work.
 */
const waiting = new Map<string, (() => void)[]>();

/** Resolves when the owner may run its next slice. Several calls of one owner share its turns. */
export function nextSlice(owner: string): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.size === 0) setImmediate(turn);
    const line = waiting.get(owner);
    if (line) line.push(resolve);
    else waiting.set(owner, [resolve]);
  });
}

function turn(): void {
  const [owner, line] = waiting.entries().next().value!;
  // Behind all others if there is more to do.
  waiting.delete(owner);
  const go = line.shift()!;
  if (line.length > 0) waiting.set(owner, line);
  if (waiting.size > 0) setImmediate(turn);
  go();
}
