/** The arguments of instructions, in the forms that they are written in. */
import { rawWords } from './parse-dockerfile.ts';

/** `["a", "b"]`; nothing for any other text, which is then meant for a shell. */
export function execForm(text: string): string[] | undefined {
  if (!text.startsWith('[')) return undefined;
  try {
    const parsed: unknown = JSON.parse(text);
    if (Array.isArray(parsed) && parsed.every((each) => typeof each === 'string')) return parsed;
  } catch {
    // A shell can have a line that begins with a bracket.
  }
  return undefined;
}

export interface NameValue {
  name: string;
  /** Absent: `ARG NAME` alone. Quotes and variables are not resolved. */
  value?: string;
}

const MOST_PAIRS = 1024;

/**
 * `NAME=VALUE NAME="OTHER VALUE"`, or the old form `NAME VALUE WITH SPACES`. Throws a plain `Error` that says
 * what is wrong.
 */
export function nameValues(text: string, escape: string, { alone = false } = {}): NameValue[] {
  const words = rawWords(text, escape, MOST_PAIRS + 1);
  if (words.length > MOST_PAIRS) throw new Error(`has more than ${MOST_PAIRS} words`);
  const [first] = words;
  if (first === undefined) throw new Error('needs a name and a value');
  if (!alone && !first.includes('=')) {
    if (words.length < 2) throw new Error(`needs a value for "${first.slice(0, 60)}"`);
    return [{ name: first, value: text.slice(text.indexOf(first) + first.length).trim() }];
  }
  return words.map((word) => {
    const equals = word.indexOf('=');
    if (equals === 0) throw new Error(`has no name before "${word.slice(0, 60)}"`);
    if (equals > 0) return { name: word.slice(0, equals), value: word.slice(equals + 1) };
    if (alone) return { name: word };
    throw new Error(`needs "=" in "${word.slice(0, 60)}"`);
  });
}
