/**
 * Patterns for paths, by the rules of Go's `filepath.Match` and of `.dockerignore`: `*` and `?` stop at a
 * slash, `[a-z]` and `[^a-z]` are classes, a backslash takes the meaning of the character after it, and with
 * `deep` a `**` is any number of directories.
 *
 * Patterns and paths are untrusted: matching takes time in proportion to the product of both lengths.
 */

type Token =
  | { type: 'literal'; character: string }
  | { type: 'one' }
  | { type: 'class'; negated: boolean; ranges: [from: number, to: number][] }
  | { type: 'star' }
  /** Directories, or nothing: what stands before another part. */
  | { type: 'directories' }
  | { type: 'rest' };

export interface PathPattern {
  matches(path: string): boolean;
  /** Whether it matches the path, or what one of its slashes ends. */
  matchesOrAbove(path: string): boolean;
  /**
   * How many characters from `from` on it matches, the fewest or the most. Undefined if it matches none of
   * them.
   */
  prefixOf(characters: readonly string[], from: number, options: { longest: boolean }): number | undefined;
}

/** Throws a plain `Error` that says what is wrong. */
export function pathPattern(text: string, { deep = false } = {}): PathPattern {
  const tokens = parse(text, deep);
  return {
    matches(path) {
      const characters = Array.from(path);
      let matched = false;
      run(tokens, characters, 0, (at) => void (matched = at === characters.length));
      return matched;
    },
    matchesOrAbove(path) {
      const characters = Array.from(path);
      let matched = false;
      run(tokens, characters, 0, (at) => {
        matched = at === characters.length || characters[at] === '/';
        return matched;
      });
      return matched;
    },
    prefixOf(characters, from, { longest }) {
      let found: number | undefined;
      run(tokens, characters, from, (at) => {
        found = at - from;
        return !longest;
      });
      return found;
    },
  };
}

function parse(text: string, deep: boolean): Token[] {
  const characters = Array.from(text);
  const tokens: Token[] = [];
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at]!;
    if (character === '*') {
      if (deep && characters[at + 1] === '*') {
        while (characters[at + 1] === '*') at++;
        if (characters[at + 1] === '/') at++;
        tokens.push({ type: at + 1 >= characters.length ? 'rest' : 'directories' });
      } else if (tokens.at(-1)?.type !== 'star') tokens.push({ type: 'star' });
    } else if (character === '?') tokens.push({ type: 'one' });
    else if (character === '[') {
      const end = parseClass(characters, at, tokens);
      at = end;
    } else if (character === '\\') {
      if (++at >= characters.length) throw new Error('it ends in a backslash');
      tokens.push({ type: 'literal', character: characters[at]! });
    } else tokens.push({ type: 'literal', character });
  }
  return tokens;
}

/** Returns the place of the closing bracket. */
function parseClass(characters: readonly string[], start: number, tokens: Token[]): number {
  let at = start + 1;
  const negated = characters[at] === '^';
  if (negated) at++;
  const ranges: [number, number][] = [];
  const one = () => {
    if (characters[at] === '\\') at++;
    const character = characters[at++];
    if (character === undefined) throw new Error('a "[" is never closed');
    return character.codePointAt(0)!;
  };
  for (; ranges.length === 0 || characters[at] !== ']';) {
    if (at >= characters.length || characters[at] === ']')
      throw new Error('a "[" is never closed, or is empty');
    const from = one();
    if (characters[at] !== '-') ranges.push([from, from]);
    else {
      at++;
      ranges.push([from, one()]);
    }
  }
  tokens.push({ type: 'class', negated, ranges });
  return at;
}

/**
 * Follows all places in the pattern at once: a flag for each. Calls `onMatch` with each place of the path up
 * to which the pattern matches, until that answers true.
 */
function run(
  tokens: readonly Token[],
  path: readonly string[],
  from: number,
  onMatch: (at: number) => boolean | void,
): void {
  let states = new Uint8Array(tokens.length + 1);
  let next = new Uint8Array(tokens.length + 1);
  /** `mayPass` is false for directories that have begun and not come to a slash. */
  const enter = (into: Uint8Array, from: number, mayPass: boolean) => {
    for (let at = from; ; at++) {
      into[at] = 1;
      const type = tokens[at]?.type;
      const passable =
        type === 'star' || type === 'rest' || (type === 'directories' && (at > from || mayPass));
      if (!passable) return;
    }
  };
  enter(states, 0, true);
  for (let place = from; ; place++) {
    if (states[tokens.length] === 1 && onMatch(place) === true) return;
    const character = path[place];
    if (character === undefined) return;
    next.fill(0);
    let some = false;
    for (let at = 0; at < tokens.length; at++) {
      if (states[at] === 0) continue;
      const token = tokens[at]!;
      if (!consumes(token, character)) continue;
      some = true;
      const stays = token.type === 'star' || token.type === 'rest' || token.type === 'directories';
      if (stays) enter(next, at, character === '/');
      else enter(next, at + 1, true);
    }
    if (!some) return;
    [states, next] = [next, states];
  }
}

function consumes(token: Token, character: string): boolean {
  switch (token.type) {
    case 'literal':
      return token.character === character;
    case 'one':
    case 'star':
      return character !== '/';
    case 'class': {
      const code = character.codePointAt(0)!;
      return (
        character !== '/' && token.ranges.some(([from, to]) => from <= code && code <= to) !== token.negated
      );
    }
    case 'directories':
    case 'rest':
      return true;
  }
}
