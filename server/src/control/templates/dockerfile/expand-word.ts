/**
 * Variables and quotes in the arguments of instructions: `$NAME`, `${NAME}`, and the operators `:-` `:+` `:?`
 * `-` `+` `?` `#` `##` `%` `%%` `/` `//`. No shell takes part.
 */
import { pathPattern } from '../../../lib/globs/path-pattern.ts';

export interface Expanding {
  /** `undefined` for a variable that is not set. */
  value(name: string): string | undefined;
  escape: string;
  /** How long values may still be compared with patterns, by all words that share it. */
  matching?: MatchingBudget;
}

/** Counts comparisons of one character with one part of a pattern. */
export interface MatchingBudget {
  left: number;
}

/** Takes some hundredths of a second. */
export const matchingBudget = (): MatchingBudget => ({ left: 5_000_000 });

const MOST_LENGTH = 256 * 1024;
const MOST_DEPTH = 50;

/** Resolves quotes, escapes and variables. Throws a plain `Error` that says what is wrong. */
export function expandWord(word: string, expanding: Expanding): string {
  const scanner: Scanner = { text: word, at: 0, depth: 0, matching: matchingBudget(), ...expanding };
  return scan(scanner, '');
}

/** Resolves variables alone, as in a here-document: quotes stay. */
export function expandText(text: string, expanding: Expanding): string {
  const scanner: Scanner = { text, at: 0, depth: 0, matching: matchingBudget(), ...expanding };
  let result = '';
  while (scanner.at < text.length) {
    const character = text[scanner.at]!;
    if (character === scanner.escape && '$\\`"'.includes(text[scanner.at + 1] ?? ' ')) {
      const next = text[scanner.at + 1]!;
      result += next === '$' || next === scanner.escape ? next : character + next;
      scanner.at += 2;
    } else if (character === '$') result += dollar(scanner);
    else {
      result += character;
      scanner.at++;
    }
    bounded(result);
  }
  return result;
}

interface Scanner extends Required<Expanding> {
  text: string;
  at: number;
  depth: number;
}

/** Up to `stop`, which is taken, or to the end. */
function scan(scanner: Scanner, stop: string): string {
  const { text, escape } = scanner;
  let result = '';
  for (;;) {
    const character = text[scanner.at];
    if (character === undefined) {
      if (stop !== '') throw new Error(`a "${stop}" is missing`);
      return result;
    }
    if (stop !== '' && stop.includes(character)) return result;
    if (character === "'") result += singleQuoted(scanner);
    else if (character === '"') result += doubleQuoted(scanner);
    else if (character === '$') result += dollar(scanner);
    else if (character === escape) {
      result += text[scanner.at + 1] ?? '';
      scanner.at += 2;
    } else {
      result += character;
      scanner.at++;
    }
    bounded(result);
  }
}

function bounded(result: string): void {
  if (result.length > MOST_LENGTH) throw new Error(`it becomes longer than ${MOST_LENGTH} characters`);
}

function singleQuoted(scanner: Scanner): string {
  const end = scanner.text.indexOf("'", scanner.at + 1);
  if (end < 0) throw new Error("a ' is never closed");
  const inside = scanner.text.slice(scanner.at + 1, end);
  scanner.at = end + 1;
  return inside;
}

function doubleQuoted(scanner: Scanner): string {
  const { text, escape } = scanner;
  let result = '';
  for (scanner.at++; ;) {
    const character = text[scanner.at];
    if (character === undefined) throw new Error('a " is never closed');
    if (character === '"') {
      scanner.at++;
      return result;
    }
    if (character === '$') result += dollar(scanner);
    else if (character === escape) {
      const next = text[scanner.at + 1];
      if (next === undefined) throw new Error('a " is never closed');
      result += next === '"' || next === '$' || next === escape ? next : character + next;
      scanner.at += 2;
    } else {
      result += character;
      scanner.at++;
    }
    bounded(result);
  }
}

function dollar(scanner: Scanner): string {
  const { text } = scanner;
  scanner.at++;
  if (text[scanner.at] === '{') {
    scanner.at++;
    return braced(scanner);
  }
  const name = takeName(scanner);
  return name === '' ? '$' : (scanner.value(name) ?? '');
}

/** A name, digits, or one of the shell's special characters, which are never set here. */
function takeName(scanner: Scanner): string {
  const [name = ''] = /^(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?!$-])/.exec(
    scanner.text.slice(scanner.at, scanner.at + 300),
  ) ?? [''];
  scanner.at += name.length;
  return name;
}

function braced(scanner: Scanner): string {
  const { text } = scanner;
  const name = takeName(scanner);
  if (name === '') throw new Error('"${" is followed by no name');
  if (++scanner.depth > MOST_DEPTH) throw new Error('variables are nested too deeply');
  const value = scanner.value(name);
  const [operator = ''] = /^(?::[-+?]|##|%%|\/\/|[-+?#%/])/.exec(text.slice(scanner.at, scanner.at + 2)) ?? [
    '',
  ];
  scanner.at += operator.length;
  if (operator === '' && text[scanner.at] !== '}')
    throw new Error(`"\${${name}${(text[scanner.at] ?? '').slice(0, 1)}" has no operator that is known`);
  const isReplacement = operator.startsWith('/');
  const word = operator === '' ? '' : scan(scanner, isReplacement ? '/}' : '}');
  let replacement = '';
  if (isReplacement && text[scanner.at] === '/') {
    scanner.at++;
    replacement = scan(scanner, '}');
  }
  if (text[scanner.at] !== '}') throw new Error(`"\${${name}" is never closed`);
  scanner.at++;
  scanner.depth--;
  return applied(operator, { name, value, word, replacement }, scanner.matching);
}

function applied(
  operator: string,
  {
    name,
    value,
    word,
    replacement,
  }: { name: string; value?: string | undefined; word: string; replacement: string },
  matching: MatchingBudget,
): string {
  const isSet = operator.startsWith(':') ? value !== undefined && value !== '' : value !== undefined;
  switch (operator) {
    case ':-':
    case '-':
      return isSet ? value! : word;
    case ':+':
    case '+':
      return isSet ? word : '';
    case ':?':
    case '?':
      if (isSet) return value!;
      throw new Error(`${name}: ${word === '' ? 'is not set' : word.slice(0, 500)}`);
    case '#':
    case '##':
      return withoutPrefix(value ?? '', word, operator === '##', matching);
    case '%':
    case '%%':
      return reversed(
        withoutPrefix(reversed(value ?? ''), reversedPattern(word), operator === '%%', matching),
      );
    case '/':
    case '//':
      return replaced(value ?? '', { word, replacement, all: operator === '//' }, matching);
    default:
      return value ?? '';
  }
}

/** Slashes are ordinary in variables. They are swapped for a character that no pattern treats otherwise. */
const SLASH = '\u0001';
const withoutSlashes = (text: string) => text.replaceAll('/', SLASH);
const patternOf = (text: string) => pathPattern(withoutSlashes(text));
const reversed = (text: string) => Array.from(text).reverse().join('');

/** A pattern for the text read backwards: classes and escaped characters stay together. */
function reversedPattern(pattern: string): string {
  return (pattern.match(/\\[^]|\[\^?(?:\\[^]|[^\]])+\]|[^]/gu) ?? []).reverse().join('');
}

const MOST_MATCHED = 4096;

function spend(matching: MatchingBudget, word: string, characters: number): void {
  matching.left -= (word.length + 1) * characters;
  if (matching.left < 0) throw new Error('comparing values with patterns takes too long');
}

function withoutPrefix(value: string, word: string, longest: boolean, matching: MatchingBudget): string {
  if (value.length > MOST_MATCHED) throw new Error(`only ${MOST_MATCHED} characters can be matched`);
  spend(matching, word, value.length);
  const length = patternOf(word).prefixOf(Array.from(withoutSlashes(value)), 0, { longest });
  return length === undefined ? value : Array.from(value).slice(length).join('');
}

function replaced(
  value: string,
  { word, replacement, all }: { word: string; replacement: string; all: boolean },
  matching: MatchingBudget,
): string {
  if (word === '') return value;
  if (value.length > MOST_MATCHED) throw new Error(`only ${MOST_MATCHED} characters can be matched`);
  const pattern = patternOf(word);
  const characters = Array.from(value);
  const text = Array.from(withoutSlashes(value));
  let result = '';
  for (let at = 0; at < text.length;) {
    spend(matching, word, text.length - at);
    const length = pattern.prefixOf(text, at, { longest: true }) ?? 0;
    if (length === 0) result += characters[at++]!;
    else {
      result += replacement;
      bounded(result);
      at += length;
      if (!all) return result + characters.slice(at).join('');
    }
  }
  return result;
}
