/** Shorter values are common words, and would mask unrelated text. */
const SHORTEST_VALUE = 6;
const MASK = '***';
/** Bound of the work for all texts of one mask, about a millisecond. Text beyond it is not shown. */
const MOST_STEPS = 20_000;
/** Characters of a comparison that count as one step. */
const STEP_CHARACTERS = 64;

export type ValueMask = (text: string, length: number) => string;

/**
 * Replaces values of environments in texts. Returns at most `length` characters and reads no more than it
 * needs for them. The time is bounded for all values and texts: when it is used up, the rest of the text is
 * masked.
 */
export function valueMask(...environments: Readonly<Record<string, string>>[]): ValueMask {
  /** Values by their first characters, longest first. */
  const values = new Map<string, string[]>();
  const firsts = new Set<number>();
  for (const value of new Set(environments.flatMap((env) => Object.values(env)))) {
    if (value.length < SHORTEST_VALUE) continue;
    const start = value.slice(0, SHORTEST_VALUE);
    const alike = values.get(start);
    if (alike) alike.push(value);
    else values.set(start, [value]);
    firsts.add(value.charCodeAt(0));
  }
  for (const alike of values.values()) alike.sort((one, other) => other.length - one.length);
  let steps = MOST_STEPS;

  /** Length of the longest value at this position; undefined if the time is used up. */
  function longestAt(text: string, at: number): number | undefined {
    if (steps-- <= 0) return undefined;
    if (!firsts.has(text.charCodeAt(at))) return 0;
    for (const value of values.get(text.slice(at, at + SHORTEST_VALUE)) ?? []) {
      steps -= 1 + value.length / STEP_CHARACTERS;
      if (text.startsWith(value, at)) return value.length;
      if (steps <= 0) return undefined;
    }
    return 0;
  }

  return (text, length) => {
    if (values.size === 0) return text.slice(0, length);
    let shown = '';
    /** Text before this position is in `shown`, plain or masked. */
    let from = 0;
    for (let at = 0; at < text.length && shown.length + at - from < length; at++) {
      const found = longestAt(text, at);
      if (found === undefined) return (shown + text.slice(from, at)).slice(0, length) + MASK;
      if (found === 0) continue;
      // A value that overlaps another or follows it directly belongs to the same mask.
      if (at > from || shown === '') shown += text.slice(from, at) + MASK;
      from = Math.max(from, at + found);
    }
    return (shown + text.slice(from, from + length)).slice(0, length);
  };
}
