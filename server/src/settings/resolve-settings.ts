/** Reads the settings from flags and variables: a flag beats a variable, and an empty variable is none. */
import { CayError } from '@cay/sdk/protocol';
import { SETTINGS, SettingsSchema, type SettingName, type Settings } from '../settings.ts';

/** What was given for a setting, and what it is called where it was given: `--pool` or `CAY_POOL`. */
export interface Given {
  by: string;
  isFlag: boolean;
  texts: readonly string[];
}

export interface Resolved {
  settings: Settings;
  given: ReadonlyMap<SettingName, Given>;
  /** As the operator wrote it; the flag, if nobody did. */
  nameOf(name: SettingName): string;
}

/** By the names of settings. A flag without a value is true or false. */
export type Flags = Readonly<Record<string, unknown>>;
export type Environment = Readonly<Record<string, string | undefined>>;

const LONGEST_SHOWN = 200;

/** Throws `invalid_argument` for the first value that cannot be, by the name of its flag or variable. */
export function resolveSettings(flags: Flags, env: Environment): Resolved {
  const given = new Map<SettingName, Given>();
  for (const setting of SETTINGS) {
    const found = givenFor(setting, flags, env);
    if (found) given.set(setting.name, found);
  }
  const texts = Object.fromEntries(
    SETTINGS.flatMap(({ name, repeat }) => {
      const found = given.get(name);
      return found ? [[name, repeat ? found.texts : found.texts.at(-1)]] : [];
    }),
  );
  const nameOf = (name: SettingName) => {
    const { long, env: variable } = SETTINGS.find((setting) => setting.name === name)!;
    return given.get(name)?.by ?? long ?? variable ?? name;
  };
  const result = SettingsSchema.safeParse(texts);
  if (result.success) return { settings: result.data, given, nameOf };
  const issue = result.error.issues[0]!;
  throw refused(issue.path[0] as SettingName, issue, given, nameOf);
}

/** The settings of the environment alone, for callers without flags. */
export function settingsIn(env: Environment): Settings {
  return resolveSettings({}, env).settings;
}

function givenFor(
  { name, long, env: own, fallback }: (typeof SETTINGS)[number],
  flags: Flags,
  env: Environment,
): Given | undefined {
  const flag = long === undefined ? undefined : flags[name];
  if (typeof flag === 'boolean') return { by: long!, isFlag: true, texts: [flag ? '1' : '0'] };
  if (typeof flag === 'string') return { by: long!, isFlag: true, texts: [flag] };
  if (Array.isArray(flag)) return { by: long!, isFlag: true, texts: flag as string[] };
  for (const variable of [own, fallback]) {
    const text = variable === undefined ? undefined : env[variable];
    if (text) return { by: variable!, isFlag: false, texts: [text] };
  }
  return undefined;
}

function refused(
  name: SettingName,
  issue: { message: string; code: string; params?: Record<string, unknown> },
  given: ReadonlyMap<SettingName, Given>,
  nameOf: Resolved['nameOf'],
): CayError {
  const { secret, choices } = SETTINGS.find((setting) => setting.name === name)!;
  const text = given.get(name)?.texts.join(',').slice(0, LONGEST_SHOWN);
  const hint = issue.params?.['hint'];
  return new CayError(
    'invalid_argument',
    `${nameOf(name)} cannot be ${secret ? 'what it is' : `"${text}"`}: ${issue.message}`,
    {
      details: { setting: name, ...(choices && { choices }) },
      hint: typeof hint === 'string' ? hint : '"cay up --help" shows every setting',
    },
  );
}
