import { SETTINGS } from '../settings.ts';
import type { About } from './setting.ts';
import type { Resolved } from './resolve-settings.ts';

/** What was given for the settings of a group, by flag or variable, as variables. Without secrets. */
export function givenVariables(
  { given }: Pick<Resolved, 'given'>,
  group: About['group'],
): Record<string, string> {
  return Object.fromEntries(
    SETTINGS.flatMap(({ name, env, group: own, secret }) => {
      const found = given.get(name);
      return own === group && !secret && env !== undefined && found ? [[env, found.texts.join(',')]] : [];
    }),
  );
}
