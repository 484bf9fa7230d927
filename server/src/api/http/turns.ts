/**
 * Lets few requests begin in each turn of the event loop, and when there are more their callers take turns:
 * one that sends many at once waits for itself, and not everybody for it.
 */
export interface Turns {
  /** Begins the work now, or in one of the next turns. Whose it is is asked only when there is a line. */
  take(callerOf: () => string, work: () => void): void;
}

/** Beginning one takes a tenth of a millisecond or two. */
const AT_ONCE = 4;

export function openTurns(): Turns {
  const waiting = new Map<string, (() => void)[]>();
  let begun = 0;
  let ends = false;

  function endTurn(): void {
    ends = true;
    setImmediate(turn);
  }

  function turn(): void {
    ends = false;
    begun = 0;
    if (waiting.size > 0) endTurn();
    // What is left after a failure is for the next turn.
    while (begun < AT_ONCE && waiting.size > 0) {
      begun++;
      next()();
    }
  }

  /** The first of the caller who has waited longest for one; then it waits behind the others. */
  function next(): () => void {
    const [caller, line] = waiting.entries().next().value!;
    const work = line.shift()!;
    waiting.delete(caller);
    if (line.length > 0) waiting.set(caller, line);
    return work;
  }

  return {
    take(callerOf, work) {
      if (!ends) endTurn();
      if (begun < AT_ONCE && waiting.size === 0) {
        begun++;
        return work();
      }
      const caller = callerOf();
      const line = waiting.get(caller);
      if (line) line.push(work);
      else waiting.set(caller, [work]);
    },
  };
}
