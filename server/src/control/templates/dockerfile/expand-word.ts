/**
 * Variables and quotes in the arguments of instructions: `$NAME`, `${NAME}`, and the operators `:-` `:+` `:?` `-`
 * `+` `?` `#` `##` `%` `%%` `/` `//`. No shell takes part.
 */
import { pathPattern } from '../../../lib/globs/path-pattern.ts';

export interface Expanding {
  /** `undefined` for a variable that is not set. */
  value(name: string): string | undefined;
  escape: string;
}

const MOST_LENGTH = 256 * 1024;
const MOST_DEPTH = 50;

/** Resolves quotes, escapes and variables. Throws a plain `Error` that says what is wrong. */
export function expandWord(word: string, expanding: Expanding): string {
  const scanner: Scanner = { text: word, at: 0, depth: 0, ...expanding };
  return scan(scanner, '');
}

/** Resolves variables alone, as in a here-document: quotes stay. */
export function expandText(text: string, expanding: Expanding): string {
  const scanner: Scanner = { text, at: 0, depth: 0, ...expanding };
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

interface Scanner extends Expanding {
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
  return applied(operator, { name, value, word, replacement });
}

function applied(
  operator: string,
  {
    name,
    value,
    word,
    replacement,
  }: { name: string; value?: string | undefined; word: string; replacement: string },
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
      return withoutPrefix(value ?? '', word, operator === '##');
    case '%':
    case '%%':
      return reversed(withoutPrefix(reversed(value ?? ''), reversedPattern(word), operator === '%%'));
    case '/':
    case '//':
      return replaced(value ?? '', word, replacement, operator === '//');
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

function withoutPrefix(value: string, word: string, longest: boolean): string {
  if (value.length > MOST_MATCHED) throw new Error(`only ${MOST_MATCHED} characters can be matched`);
  const pattern = patternOf(word);
  const text = withoutSlashes(value);
  const lengths = Array.from({ length: text.length + 1 }, (_, at) => (longest ? text.length - at : at));
  const length = lengths.find((each) => pattern.matches(text.slice(0, each)));
  return length === undefined ? value : value.slice(length);
}

function replaced(value: string, word: string, replacement: string, all: boolean): string {
  if (word === '') return value;
  if (value.length > MOST_MATCHED / 4) throw new Error(`only ${MOST_MATCHED / 4} characters can be matched`);
  const pattern = patternOf(word);
  const text = withoutSlashes(value);
  let result = '';
  for (let at = 0; at < text.length;) {
    let end = text.length;
    while (end > at && !pattern.matches(text.slice(at, end))) end--;
    if (end === at) result += value[at++]!;
    else {
      result += replacement;
      bounded(result);
      at = end;
      if (!all) return result + value.slice(at);
    }
  }
  return result;
}
