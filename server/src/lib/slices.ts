/**
 * Work that takes long on the event loop is done in pieces of about a millisecond. Of all such work, one piece
 * is done in each turn of the event loop, and its owners take turns: so neither one owner with many calls nor
 * many owners hold up what is short.
 */
const waiting = new Map<string, (() => void)[]>();

/** Resolves when the owner may do its next piece. Whoever waits with others for the same owner waits longer. */
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
