/** `.dockerignore`: which paths of a build context are left out. */
import { posix } from 'node:path';
import { pathPattern, type PathPattern } from './path-pattern.ts';

export interface IgnoreFile {
  /** Whether a path, relative to the context, is left out. */
  ignores(path: string): boolean;
  /** The same, with `pace` awaited between patterns: a path may be compared with very many. */
  ignoresInTurns(path: string, pace: () => Promise<void>): Promise<boolean>;
  /** Whether everything below a directory is left out, so that it need not be looked into. */
  ignoresAllBelow(path: string): boolean;
}

interface Rule {
  pattern: PathPattern;
  isException: boolean;
}

const MOST_RULES = 2000;
const MOST_LENGTH = 1024;
const RULES_IN_A_TURN = 8;

/** Throws a plain `Error` that names the line. */
export function ignoreFile(text: string): IgnoreFile {
  const rules: Rule[] = [];
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .entries()) {
    if (raw.startsWith('#')) continue;
    let line = raw.trim();
    if (line === '') continue;
    const isException = line.startsWith('!');
    if (isException) line = line.slice(1).trim();
    if (line === '') throw new Error(`line ${index + 1}: "!" needs a pattern`);
    if (rules.length >= MOST_RULES || line.length > MOST_LENGTH)
      throw new Error(
        `line ${index + 1}: there are at most ${MOST_RULES} patterns of ${MOST_LENGTH} characters`,
      );
    const cleaned = posix.normalize(line).replace(/\/+$/, '') || '/';
    const relative = cleaned.length > 1 && cleaned.startsWith('/') ? cleaned.slice(1) : cleaned;
    try {
      rules.push({ pattern: pathPattern(relative, { deep: true }), isException });
    } catch (error) {
      throw new Error(`line ${index + 1}: "${line.slice(0, 200)}": ${(error as Error).message}`);
    }
  }
  const hasExceptions = rules.some(({ isException }) => isException);

  /** A rule that matches a directory matches all below it. The last rule that matches decides. */
  function ignores(path: string): boolean {
    if (path === '' || path === '.') return false;
    let ignored = false;
    for (const rule of rules) ignored = decided(rule, path, ignored);
    return ignored;
  }

  async function ignoresInTurns(path: string, pace: () => Promise<void>): Promise<boolean> {
    if (path === '' || path === '.') return false;
    let ignored = false;
    for (const [at, rule] of rules.entries()) {
      if (at % RULES_IN_A_TURN === 0) await pace();
      ignored = decided(rule, path, ignored);
    }
    return ignored;
  }

  return { ignores, ignoresInTurns, ignoresAllBelow: (path) => !hasExceptions && ignores(path) };
}

const decided = ({ pattern, isException }: Rule, path: string, ignored: boolean): boolean =>
  isException === ignored && pattern.matchesOrAbove(path) ? !isException : ignored;
