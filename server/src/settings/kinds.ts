/** The kinds of values that settings have, each a zod schema that takes the text as it was given. */
import { isCayError } from '@cay/sdk/protocol';
import { z } from 'zod';
import * as units from '../lib/units.ts';

const LONGEST = 65_536;
const TRUE = ['1', 'true', 'yes', 'on'];
const FALSE = ['0', 'false', 'no', 'off'];
const QUANTITY = /^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/;

const text = z.string().max(LONGEST, `must have at most ${LONGEST} characters`);
const texts = z.array(text);

/** What a function makes of it; its `UnitError` or `CayError` says what is wrong. */
export function parsed<T>(parse: (text: string) => T) {
  return text.transform((given, context) => attempt(() => parse(given), context));
}

/** The text itself, if a function takes it. */
export function checked(parse: (text: string) => unknown) {
  return parsed((given) => {
    parse(given);
    return given;
  });
}

/** What a function makes of all that was given, each time with commas between the parts. */
export function gathered<T>(parse: (parts: string[]) => T) {
  return texts.transform((given, context) => attempt(() => parse(given.flatMap(partsOf)), context));
}

export function partsOf(given: string): string[] {
  return given
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

function attempt<T>(parse: () => T, context: z.RefinementCtx): T {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof units.UnitError) && !isCayError(error)) throw error;
    const hint = isCayError(error) ? error.hint : undefined;
    context.addIssue({ code: 'custom', message: error.message, params: { hint } });
    return z.NEVER;
  }
}

export const anyText = text;
export const list = gathered((parts) => parts);
export const count = parsed(units.parseCount);
export const size = parsed(units.parseSize);
export const times = parsed(units.parseTimes);
export const percent = parsed((given) => {
  const value = Number(given.replace(/ ?%$/, ''));
  if (!(value >= 1 && value <= 100)) throw new units.UnitError('must be a number from 1 to 100');
  return value;
});
export const hostPort = parsed(units.parseHostPort);
export const onOff = parsed((given) => {
  const word = given.toLowerCase();
  if (!TRUE.includes(word) && !FALSE.includes(word)) throw new units.UnitError('must be 1 or 0');
  return TRUE.includes(word);
});

/** An amount as Kubernetes writes it. */
export const quantity = checked((given) => {
  if (!QUANTITY.test(given)) throw new units.UnitError('must be an amount such as 16, 500m or 64Gi');
});

/** The address has a password in it: no message repeats it. */
export const databaseUrl = checked((given) => {
  if (!/^postgres(ql)?:\/\//.test(given))
    throw new units.UnitError(
      'must be the address of a PostgreSQL database: postgres://user:password@host:port/name',
    );
});

export function choice<const T extends string>(...known: T[]) {
  return z.enum(known, `must be one of ${known.join(', ')}`);
}

export function countBetween(least: number, most: number, message: string) {
  return parsed((given) => {
    const number = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN;
    if (!(number >= least && number <= most)) throw new units.UnitError(message);
    return number;
  });
}

/** Each of a list has this form. */
export function listOf(form: RegExp, what: string) {
  return gathered((parts) => {
    const strange = parts.find((part) => !form.test(part));
    if (strange !== undefined) throw new units.UnitError(`"${strange.slice(0, 200)}" is not ${what}`);
    return parts;
  });
}
