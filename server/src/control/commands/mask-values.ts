/** Shorter values are words that stand in many command lines by chance. */
const SHORTEST_VALUE = 6;
const MASK = '***';
/**
 * Steps that all texts of one mask may take together, about a millisecond. What is left then is not shown.
 */
const MOST_STEPS = 20_000;
/** So many characters of a comparison are one step. */
const STEP_CHARACTERS = 64;

export type ValueMask = (text: string, length: number) => string;

/**
 * Blanks values of environments in texts. It gives at most `length` characters of a text, and looks at no
 * more of it than it needs for them. The time is bounded, whatever values and texts are: when it is used up,
 * the rest of a text is a mask.
 */
export function valueMask(...environments: Readonly<Record<string, string>>[]): ValueMask {
  /** By how they begin, the longest first. */
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

  /** The length of the longest value that begins here; undefined when there was no time to find out. */
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
    /** Everything before it is in `shown`, as it is or as a mask. */
    let from = 0;
    for (let at = 0; at < text.length && shown.length + at - from < length; at++) {
      const found = longestAt(text, at);
      if (found === undefined) return (shown + text.slice(from, at)).slice(0, length) + MASK;
      if (found === 0) continue;
      // A value that begins inside of another, or right after it, belongs to the same mask.
      if (at > from || shown === '') shown += text.slice(from, at) + MASK;
      from = Math.max(from, at + found);
    }
    return (shown + text.slice(from, from + length)).slice(0, length);
  };
}
