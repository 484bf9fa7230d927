/** `.dockerignore`: which paths of a build context are left out. */
import { posix } from 'node:path';
import { pathPattern, type PathPattern } from './path-pattern.ts';

export interface IgnoreFile {
  /** Whether a path, relative to the context, is left out. */
  ignores(path: string): boolean;
  /** Whether everything below a directory is left out, so that it need not be looked into. */
  ignoresAllBelow(path: string): boolean;
}

interface Rule {
  pattern: PathPattern;
  isException: boolean;
}

const MOST_RULES = 2000;
const MOST_LENGTH = 1024;

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
    if (rules.length === 0 || path === '' || path === '.') return false;
    const parts = path.split('/');
    const above = parts.map((_, at) => parts.slice(0, at + 1).join('/'));
    let ignored = false;
    for (const { pattern, isException } of rules)
      if (isException === ignored && above.some((each) => pattern.matches(each))) ignored = !isException;
    return ignored;
  }

  return { ignores, ignoresAllBelow: (path) => !hasExceptions && ignores(path) };
}
