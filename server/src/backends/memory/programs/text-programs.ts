import { setTimeout } from 'node:timers/promises';
import type { Program } from '../program.ts';
import { flagsOf, forEach, openInput } from './streams.ts';

const ESCAPES: Record<string, string> = { n: '\n', t: '\t', r: '\r', '\\': '\\', a: '\u0007', '"': '"' };
const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

const echo: Program = async ({ argv, stdout }) => {
  const bare = argv[1] === '-n';
  await stdout.write(argv.slice(bare ? 2 : 1).join(' ') + (bare ? '' : '\n'));
  return 0;
};

/** Repeats the format for as long as arguments are left, as POSIX has it. */
const printf: Program = async ({ argv, stdout }) => {
  const [, format = '', ...values] = argv;
  const conversions = format.replaceAll('%%', '').split('%').length - 1;
  let text = '';
  do {
    text += format.replace(
      /\\([0-7]{1,3})|\\(.)|%%|%([sd])|%(.?)/g,
      (whole, octal, escape, conversion, wrong) => {
        if (octal) return String.fromCharCode(Number.parseInt(octal, 8));
        if (escape) return ESCAPES[escape] ?? whole;
        if (conversion === 's') return values.shift() ?? '';
        if (conversion === 'd') return String(Math.trunc(Number(values.shift() ?? 0)) || 0);
        if (wrong !== undefined) throw new Error(`"%${wrong}" is not known to the memory backend`);
        return '%';
      },
    );
  } while (values.length > 0 && conversions > 0);
  await stdout.write(text);
  return 0;
};

const cat: Program = (context) => {
  const { rest } = flagsOf(context.argv, 'u');
  return forEach(context, rest.length > 0 ? rest : ['-'], async (name) => {
    for await (const part of await openInput(context, name)) await context.stdout.write(part);
  });
};

const head: Program = (context) => {
  const [, flag, count] = context.argv;
  const counted = flag === '-c' || flag === '-n';
  const names = context.argv.slice(counted ? 3 : 1);
  const limit = counted ? Number(count) : 10;
  if (!Number.isSafeInteger(limit) || limit < 0) throw new Error(`"${count}" is not a number`);
  return forEach(context, names.length > 0 ? names : ['-'], async (name) => {
    let left = limit;
    if (left === 0) return;
    for await (const part of await openInput(context, name)) {
      const end = flag === '-c' ? Math.min(left, part.length) : endOfLines(part, left);
      left -= flag === '-c' ? end : newlines(part.subarray(0, end));
      await context.stdout.write(part.subarray(0, end));
      if (left === 0) return;
    }
  });
};

const newlines = (bytes: Uint8Array) => bytes.reduce((count, byte) => count + (byte === 10 ? 1 : 0), 0);

function endOfLines(bytes: Uint8Array, lines: number): number {
  let at = -1;
  for (let line = 0; line < lines; line++) {
    at = bytes.indexOf(10, at + 1);
    if (at < 0) return bytes.length;
  }
  return at + 1;
}

const wc: Program = async (context) => {
  const { flags, rest } = flagsOf(context.argv, 'lwc');
  const wanted = flags.size > 0 ? flags : new Set('lwc');
  return forEach(context, rest.length > 0 ? rest : ['-'], async (name) => {
    const counts = { l: 0, w: 0, c: 0 };
    let inWord = false;
    for await (const part of await openInput(context, name)) {
      counts.c += part.length;
      if (!wanted.has('l') && !wanted.has('w')) continue;
      for (const byte of part) {
        const blank = byte === 32 || (byte >= 9 && byte <= 13);
        if (byte === 10) counts.l++;
        if (!blank && !inWord) counts.w++;
        inWord = !blank;
      }
    }
    const numbers = (['l', 'w', 'c'] as const).filter((key) => wanted.has(key)).map((key) => counts[key]);
    await context.stdout.write(`${numbers.join(' ')}${name === '-' ? '' : ` ${name}`}\n`);
  });
};

const sleep: Program = async ({ argv, signal }) => {
  const seconds = argv.slice(1).map((text) => {
    const match = /^(\d+(?:\.\d+)?|\.\d+)([smhd]?)$/.exec(text);
    if (!match) throw new Error(`invalid time interval "${text}"`);
    return Number(match[1]) * UNITS[match[2] || 's']!;
  });
  if (seconds.length === 0) throw new Error('missing operand');
  const total = seconds.reduce((sum, each) => sum + each, 0);
  // Timers of Node hold at most 2^31 ms.
  await setTimeout(Math.min(total * 1000, 2_147_483_647), undefined, { signal });
  return 0;
};

export const TEXT_PROGRAMS: Record<string, Program> = {
  true: () => 0,
  false: () => 1,
  echo,
  printf,
  cat,
  head,
  wc,
  sleep,
};
