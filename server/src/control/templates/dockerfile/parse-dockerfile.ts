import { nearest } from '../../../lib/nearest.ts';
import { trimEnd } from '../../../lib/trim-end.ts';
import {
  dockerfileError,
  INSTRUCTIONS,
  type Dockerfile,
  type Flag,
  type Heredoc,
  type Instruction,
  type InstructionName,
} from './dockerfile.ts';

export const MOST_DOCKERFILE_BYTES = 1024 * 1024;
const MOST_INSTRUCTIONS = 2000;
const MOST_HEREDOCS = 100;
const DIRECTIVE = /^#[ \t]*([A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*([^ \t].*)$/;
const TAKES_HEREDOCS = new Set<string>(['ADD', 'COPY', 'RUN']);

/** Reads the text of a Dockerfile. Throws `invalid_argument` with the line. */
export function parseDockerfile(text: string): Dockerfile {
  if (Buffer.byteLength(text) > MOST_DOCKERFILE_BYTES)
    throw dockerfileError(1, `it is larger than ${MOST_DOCKERFILE_BYTES} bytes`);
  if (text.includes('\0')) throw dockerfileError(1, 'it has a NUL byte, so it is not text');
  const lines = text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .map((line) => line.replace(/\r$/, ''));
  const { escape, syntax, after } = directives(lines);
  const instructions: Instruction[] = [];
  for (let at = after; at < lines.length;) {
    const first = at + 1;
    const logical = logicalLine(lines, at, escape);
    at = logical.next;
    if (logical.text.trim() === '') continue;
    if (instructions.length >= MOST_INSTRUCTIONS)
      throw dockerfileError(first, `there are more than ${MOST_INSTRUCTIONS} instructions`);
    const { heredocs, next } = readHeredocs(lines, at, logical.text, escape, first);
    at = next;
    instructions.push({ ...parseInstruction(logical.text, first, escape), heredocs });
  }
  if (instructions.length === 0) throw dockerfileError(1, 'it has no instruction', 'begin with FROM');
  return { escape, ...(syntax !== undefined && { syntax }), instructions };
}

/** Comments at the top that say how the rest is to be read. The first line that is none ends them. */
function directives(lines: readonly string[]): { escape: string; syntax?: string; after: number } {
  const found = new Map<string, string>();
  let at = 0;
  for (; at < lines.length; at++) {
    const [, name, value] = DIRECTIVE.exec(lines[at]!.trim()) ?? [];
    const key = name?.toLowerCase();
    if (key === undefined || value === undefined || !['escape', 'syntax', 'check'].includes(key)) break;
    if (found.has(key)) throw dockerfileError(at + 1, `the directive "${key}" stands there twice`);
    if (key === 'escape' && value !== '\\' && value !== '`')
      throw dockerfileError(at + 1, `"escape" is \\ or \`, not "${value.slice(0, 20)}"`);
    found.set(key, value);
  }
  const syntax = found.get('syntax');
  return { escape: found.get('escape') ?? '\\', ...(syntax !== undefined && { syntax }), after: at };
}

const isComment = (line: string) => line.trimStart().startsWith('#');

/** Joins a line with those that continue it. Comments and empty lines in between are left out. */
function logicalLine(
  lines: readonly string[],
  start: number,
  escape: string,
): { text: string; next: number } {
  let text = '';
  for (let at = start; at < lines.length; at++) {
    const line = at === start ? lines[at]!.trimStart() : lines[at]!;
    if (isComment(line)) {
      if (at === start) return { text: '', next: at + 1 };
      continue;
    }
    if (at > start && line.trim() === '') continue;
    const trimmed = trimEnd(line, ' \t');
    // Two of them stand for the character itself.
    const isContinued = trimmed.endsWith(escape) && trimmed.at(-2) !== escape;
    if (!isContinued) return { text: text + line, next: at + 1 };
    text += trimmed.slice(0, -1);
  }
  return { text, next: lines.length };
}

/** The here-documents that a line announces, which follow it. */
function readHeredocs(
  lines: readonly string[],
  start: number,
  text: string,
  escape: string,
  first: number,
): { heredocs: Heredoc[]; next: number } {
  const [, name = '', rest = ''] = /^(\S+)(?:\s+([^]*))?$/.exec(text.trim()) ?? [];
  const announcing = name.toUpperCase() === 'ONBUILD' ? rest : text.trim();
  const [, instruction = '', args = ''] = /^(\S+)(?:\s+([^]*))?$/.exec(announcing) ?? [];
  const heredocs: Heredoc[] = [];
  let at = start;
  if (!TAKES_HEREDOCS.has(instruction.toUpperCase()) || !args.includes('<<')) return { heredocs, next: at };
  for (const { word, quoted, chomps } of announced(args, escape)) {
    if (heredocs.length >= MOST_HEREDOCS) throw dockerfileError(first, 'there are too many here-documents');
    const content: string[] = [];
    for (; ; at++) {
      const raw = lines[at];
      if (raw === undefined) throw dockerfileError(first, `the here-document "${word}" never ends`);
      const line = chomps ? raw.replace(/^\t+/, '') : raw;
      if (line === word) break;
      content.push(line);
    }
    at++;
    const whole = content.map((line) => `${line}\n`).join('');
    heredocs.push({ name: word, content: whole, expands: !quoted, chomps });
  }
  return { heredocs, next: at };
}

/** `<<EOF`, `<<-EOF`, `3<<"EOF"` as words of their own, outside of quotes. */
function announced(args: string, escape: string): { word: string; quoted: boolean; chomps: boolean }[] {
  const found: { word: string; quoted: boolean; chomps: boolean }[] = [];
  for (const word of rawWords(args, escape)) {
    const [, dash, name] = /^\d*<<(-?)([^<]+)$/.exec(word) ?? [];
    if (name === undefined) continue;
    const plain = name.replaceAll(/["']/g, '').replaceAll(escape, '');
    if (plain !== '') found.push({ word: plain, quoted: plain !== name, chomps: dash === '-' });
  }
  return found;
}

/** Words as they are written: quotes and escapes stay, and hold together what is in them. */
export function rawWords(text: string, escape: string, most = Number.POSITIVE_INFINITY): string[] {
  const words: string[] = [];
  let word = '';
  let quote = '';
  for (let at = 0; at < text.length; at++) {
    const character = text[at]!;
    if (quote === '' && /\s/.test(character)) {
      if (word !== '' && words.push(word) >= most) return words;
      word = '';
      continue;
    }
    word += character;
    if (character === escape && quote !== "'" && at + 1 < text.length) word += text[++at]!;
    else if (quote === '' && (character === '"' || character === "'")) quote = character;
    else if (character === quote) quote = '';
  }
  if (word !== '') words.push(word);
  return words;
}

function parseInstruction(text: string, line: number, escape: string): Omit<Instruction, 'heredocs'> {
  const [, written = '', after = ''] = /^(\S+)([^]*)$/.exec(text.trim()) ?? [];
  const name = written.toUpperCase();
  if (!(INSTRUCTIONS as readonly string[]).includes(name)) {
    const meant = nearest(name, INSTRUCTIONS);
    throw dockerfileError(
      line,
      `"${written.slice(0, 40)}" is no instruction`,
      meant === undefined ? undefined : `did you mean ${meant}?`,
    );
  }
  const { flags, rest } = takeFlags(after.trimStart(), escape, line);
  return { name: name as InstructionName, flags, rest: rest.trim(), line };
}

/** Flags stand before the arguments; `--` ends them. */
function takeFlags(text: string, escape: string, line: number): { flags: Flag[]; rest: string } {
  const flags: Flag[] = [];
  let rest = text;
  while (rest.startsWith('--')) {
    const [word] = rawWords(rest, escape, 1);
    if (word === undefined) break;
    rest = rest.slice(word.length).trimStart();
    if (word === '--') break;
    const [, name, value] = /^--([a-z][a-z0-9-]*)(?:=([^]*))?$/.exec(word) ?? [];
    if (name === undefined) throw dockerfileError(line, `"${word.slice(0, 60)}" is no flag`);
    flags.push({ name, ...(value !== undefined && { value }) });
    if (flags.length > 100) throw dockerfileError(line, 'there are too many flags');
  }
  return { flags, rest };
}
