/**
 * Names of hosts, in their one form: lower case, ASCII (`xn--` for others), no trailing dot. What could be
 * read in two ways, or looks like another name, is refused with what to write.
 */
import { domainToASCII, domainToUnicode } from 'node:url';

export const MAX_NAME = 253;
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
const SPECIAL_SUFFIXES = ['localhost', 'local', 'onion', 'invalid', 'in-addr.arpa', 'ip6.arpa'];

/** Scripts whose letters look like those of another one. A label has letters of one of them at most. */
const LOOKALIKE_SCRIPTS = [
  /\p{Script=Latin}/u,
  /\p{Script=Cyrillic}/u,
  /\p{Script=Greek}/u,
  /\p{Script=Armenian}/u,
  /\p{Script=Cherokee}/u,
  /\p{Script=Coptic}/u,
  /\p{Script=Georgian}/u,
  /\p{Script=Hebrew}/u,
  /\p{Script=Arabic}/u,
];

export type ParsedName =
  | { readonly ok: true; readonly name: string }
  | { readonly ok: false; readonly problem: string; readonly write?: string };

const refused = (problem: string, write?: string): ParsedName => ({
  ok: false,
  problem,
  ...(write !== undefined && { write }),
});

/** Reads a name as people write it. */
export function parseName(text: string): ParsedName {
  if (text === '') return refused('the name is empty');
  if (text.length > 4 * MAX_NAME) return refused('the name is too long');
  const bare = text.endsWith('.') ? text.slice(0, -1) : text;
  // eslint-disable-next-line no-control-regex
  if (/^[\x00-\x7f]*$/.test(bare)) return checkAscii(bare.toLowerCase());
  const ascii = domainToASCII(bare);
  if (ascii === '') return refused(`"${bare}" is no internationalised name`);
  if (domainToUnicode(ascii) !== bare.toLowerCase().normalize('NFC'))
    return refused(
      `"${bare}" has characters that stand for others`,
      checkAscii(ascii).ok ? domainToUnicode(ascii) : undefined,
    );
  return checkAscii(ascii);
}

/**
 * The form in which names are compared, of what a program inside asks for. Nothing for what is no name of a
 * host outside.
 */
export function normalizeName(text: string): string | undefined {
  if (text.length > MAX_NAME + 1) return undefined;
  const name = (text.endsWith('.') ? text.slice(0, -1) : text).toLowerCase();
  return checkShape(name) === undefined ? name : undefined;
}

function checkAscii(name: string): ParsedName {
  const problem = checkShape(name);
  if (problem !== undefined) return problem;
  if (!name.includes('xn--')) return { ok: true, name };
  const unicode = domainToUnicode(name);
  if (domainToASCII(unicode) !== name || /(^|\.)xn--/.test(unicode))
    return refused(`"${name}" is no valid internationalised name`);
  const mixed = unicode.split('.').find(isMixed);
  return mixed === undefined
    ? { ok: true, name }
    : refused(`"${mixed}" mixes letters of scripts that look alike; its ASCII form is "${name}"`);
}

function checkShape(name: string): ParsedName | undefined {
  if (name === '') return refused('the name is empty');
  if (name.length > MAX_NAME) return refused(`the name has more than ${MAX_NAME} characters`);
  const labels = name.split('.');
  if (labels.includes('')) return refused('there is an empty label between dots');
  const odd = labels.find((label) => !LABEL.test(label));
  if (odd !== undefined)
    return refused(
      odd.length > 63 ? 'a label has more than 63 characters' : `"${odd}" is no label of a name`,
    );
  const last = labels.at(-1)!;
  if (/^(\d+|0x[0-9a-f]*)$/.test(last))
    return refused(`"${name}" ends in a number and can be read as an IPv4 address`, ipv4Of(name));
  if (labels.length === 1) return refused(`"${name}" has no dot, so it is no full name`);
  const special = SPECIAL_SUFFIXES.find((suffix) => name === suffix || name.endsWith(`.${suffix}`));
  return special === undefined ? undefined : refused(`names below "${special}" are not on the internet`);
}

/** The address that the URL standard reads in octal, hexadecimal and short forms. */
function ipv4Of(text: string): string | undefined {
  const host = URL.canParse(`http://${text}/`) ? new URL(`http://${text}/`).hostname : '';
  return /^\d+\.\d+\.\d+\.\d+$/.test(host) ? host : undefined;
}

function isMixed(label: string): boolean {
  const letters = label.startsWith('xn--') ? label.slice(4) : label;
  return LOOKALIKE_SCRIPTS.filter((script) => script.test(letters)).length > 1;
}
