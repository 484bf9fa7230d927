/**
 * The grammar of the memory backend's shell: words with quotes and variables, pipelines, `;`, `&&`, `||`, `&`
 * and redirections. All else is refused as a syntax error, so that no test passes by accident.
 */
export class ShellSyntaxError extends Error {
  override readonly name = 'ShellSyntaxError';
}

export type Part =
  | { kind: 'text'; text: string; quoted: boolean }
  /** `$name`, or `${name:-other}` with `operator` `:-`, `-`, `:+` or `+`. */
  | { kind: 'variable'; name: string; operator?: string; other?: Word; quoted: boolean };
export type Word = Part[];

export type Redirect = { fd: 0 | 1 | 2 } & (
  | { kind: 'read' | 'write' | 'append'; path: Word }
  | { kind: 'duplicate'; of: 1 | 2 }
);

export interface SimpleCommand {
  assignments: { name: string; value: Word }[];
  words: Word[];
  redirects: Redirect[];
}

/** A pipeline, and what stands between it and the next. */
export interface Step {
  commands: SimpleCommand[];
  next: ';' | '&&' | '||' | '&';
}

type Token = { kind: 'word'; word: Word; text: string } | { kind: 'operator'; text: string };

const RESERVED = new Set([
  'if',
  'then',
  'else',
  'elif',
  'fi',
  'for',
  'while',
  'until',
  'do',
  'done',
  'case',
  'esac',
  'function',
  '{',
  '}',
  '!',
  '[[',
  'in',
]);
const OPERATOR = /^(?:&&|\|\||;|\n|&(?!>)|\||[012]?>&[12]|[012]?>>|[012]?>|0?<(?![<&(]))/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]*/;

const unknown = (what: string) =>
  new ShellSyntaxError(`syntax error: ${what} is not known to the shell of the memory backend`);

export function parseShell(source: string): Step[] {
  const tokens = tokenize(source);
  const steps: Step[] = [];
  let at = 0;
  const isSeparator = (token: Token | undefined) =>
    token?.kind === 'operator' && [';', '\n'].includes(token.text);
  for (;;) {
    while (isSeparator(tokens[at])) at++;
    if (at >= tokens.length) return steps;
    const commands = [command()];
    while (peek() === '|') {
      at++;
      while (peek() === '\n') at++;
      commands.push(command());
    }
    const operator = peek() ?? ';';
    at++;
    steps.push({ commands, next: operator === '\n' ? ';' : (operator as Step['next']) });
    if (operator === '&&' || operator === '||') {
      while (peek() === '\n') at++;
      if (at >= tokens.length) throw new ShellSyntaxError('syntax error: unexpected end of file');
    }
  }

  function peek(): string | undefined {
    const token = tokens[at];
    return token?.kind === 'operator' ? token.text : undefined;
  }

  function command(): SimpleCommand {
    const made: SimpleCommand = { assignments: [], words: [], redirects: [] };
    for (let token = tokens[at]; token; token = tokens[++at]) {
      if (token.kind === 'word') {
        const assignment = made.words.length === 0 ? assignmentOf(token.word) : undefined;
        if (assignment) made.assignments.push(assignment);
        else if (made.words.length === 0 && RESERVED.has(token.text)) throw unknown(`"${token.text}"`);
        else made.words.push(token.word);
      } else if (/[<>]/.test(token.text)) {
        made.redirects.push(redirect(token.text));
      } else {
        break;
      }
    }
    if (made.words.length + made.assignments.length + made.redirects.length === 0) {
      throw new ShellSyntaxError(`syntax error near ${JSON.stringify(peek() ?? 'the end')}`);
    }
    return made;
  }

  function redirect(text: string): Redirect {
    const input = text.endsWith('<');
    const fd = (/^\d/.test(text) ? Number(text[0]) : input ? 0 : 1) as Redirect['fd'];
    const duplicate = /&([12])$/.exec(text);
    if (duplicate) return { kind: 'duplicate', fd, of: Number(duplicate[1]) as 1 | 2 };
    const target = tokens[++at];
    if (target?.kind !== 'word') throw new ShellSyntaxError(`syntax error: "${text}" needs a file`);
    return { kind: input ? 'read' : text.endsWith('>>') ? 'append' : 'write', fd, path: target.word };
  }
}

function assignmentOf(word: Word): { name: string; value: Word } | undefined {
  const [first, ...rest] = word;
  if (first?.kind !== 'text' || first.quoted) return undefined;
  const match = /^([A-Za-z_][A-Za-z0-9_]*)=/.exec(first.text);
  if (!match) return undefined;
  return { name: match[1]!, value: [{ ...first, text: first.text.slice(match[0].length) }, ...rest] };
}

function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  while (at < source.length) {
    const rest = source.slice(at, at + 4);
    const blank = /^(?:[ \t]|\\\n)/.exec(rest);
    if (blank) {
      at += blank[0].length;
      continue;
    }
    if (rest.startsWith('#')) {
      while (at < source.length && source[at] !== '\n') at++;
      continue;
    }
    const operator = OPERATOR.exec(rest);
    if (operator) {
      tokens.push({ kind: 'operator', text: operator[0] });
      at += operator[0].length;
      continue;
    }
    if (/^[()<>&]/.test(rest)) throw unknown(`"${rest[0]}"`);
    const { word, end } = readWord(source, at, (character) => /[\s;&|<>()]/.test(character));
    tokens.push({ kind: 'word', word, text: source.slice(at, end) });
    at = end;
  }
  return tokens;
}

/** Reads from `at` up to an unquoted character for which `stop` holds. */
function readWord(
  source: string,
  at: number,
  stop: (character: string) => boolean,
): { word: Word; end: number } {
  const word: Word = [];
  const add = (text: string, quoted: boolean) => {
    const last = word.at(-1);
    if (last?.kind === 'text' && last.quoted === quoted) last.text += text;
    else word.push({ kind: 'text', text, quoted });
  };
  while (at < source.length && !stop(source[at]!)) {
    const character = source[at]!;
    if (character === '\\') {
      if (source[at + 1] !== '\n') add(source[at + 1] ?? '\\', true);
      at += 2;
    } else if (character === "'") {
      const close = source.indexOf("'", at + 1);
      if (close < 0) throw new ShellSyntaxError('syntax error: unterminated quote');
      add(source.slice(at + 1, close), true);
      at = close + 1;
    } else if (character === '"') {
      at = readQuoted(source, at + 1, word, add);
    } else if (character === '$') {
      at = readVariable(source, at, false, word, add);
    } else if (character === '`') {
      throw unknown('"`"');
    } else {
      add(character, false);
      at++;
    }
  }
  if (word.some((part) => part.kind === 'text' && !part.quoted && /[*?]|\[.*\]/.test(part.text)))
    throw unknown('a pattern of file names');
  return { word, end: at };
}

type Add = (text: string, quoted: boolean) => void;

function readQuoted(source: string, at: number, word: Word, add: Add): number {
  add('', true);
  while (source[at] !== '"') {
    const character = source[at];
    if (character === undefined) throw new ShellSyntaxError('syntax error: unterminated quote');
    if (character === '\\' && '"\\$`\n'.includes(source[at + 1] ?? ' ')) {
      if (source[at + 1] !== '\n') add(source[at + 1]!, true);
      at += 2;
    } else if (character === '$') {
      at = readVariable(source, at, true, word, add);
    } else if (character === '`') {
      throw unknown('"`"');
    } else {
      add(character, true);
      at++;
    }
  }
  return at + 1;
}

/** Precondition: a `$` is at `at`. */
function readVariable(source: string, at: number, quoted: boolean, word: Word, add: Add): number {
  const rest = source.slice(at + 1, at + 300);
  const plain = NAME.exec(rest)?.[0] ?? /^[0-9?#@$]/.exec(rest)?.[0];
  if (plain) {
    word.push({ kind: 'variable', name: plain, quoted });
    return at + 1 + plain.length;
  }
  if (rest.startsWith('(')) throw unknown('"$("');
  if (!rest.startsWith('{')) {
    add('$', quoted);
    return at + 1;
  }
  const match = /^\{([A-Za-z_][A-Za-z0-9_]*|[0-9?#@])(:?[-+])?/.exec(rest);
  if (!match) throw unknown('this use of "${"');
  const [begun, name, operator] = match;
  const { word: other, end } = readWord(source, at + 1 + begun.length, (character) => character === '}');
  if (source[end] !== '}' || (!operator && other.length > 0)) throw unknown('this use of "${"');
  word.push({ kind: 'variable', name: name!, quoted, ...(operator && { operator, other }) });
  return end + 1;
}
