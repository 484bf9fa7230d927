import { InvalidArgumentError, Option } from 'commander';
import type { Composition } from '../verb.ts';

/** `--backend`: one of those that there are, or several with commas between them. */
export function backendOption({ backends }: Composition, description: string): Option {
  return new Option(
    '--backend <names>',
    `${description}: ${backends.join(', ')}, or several with commas between them`,
  )
    .default('local')
    .env('CAY_BACKEND')
    .argParser((text: string) => {
      const names = namesOf(text);
      const unknown = names.find((name) => !backends.includes(name));
      if (unknown !== undefined || names.length === 0) {
        throw new InvalidArgumentError(
          `Unknown backend "${unknown ?? text}"; there are ${backends.join(', ')}.`,
        );
      }
      if (new Set(names).size < names.length) throw new InvalidArgumentError('Each may be named once.');
      return names.join(',');
    });
}

/** The names in what `--backend` gives. */
export function namesOf(text: string): string[] {
  return text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
}
