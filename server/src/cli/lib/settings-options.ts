/** The flags of settings, made from the schema. Their values stay text: `resolveSettings` reads them. */
import { Option, type Command } from 'commander';
import { SETTINGS, type SettingName } from '../../settings.ts';
import { GROUPS, type Described } from '../../settings/setting.ts';

/** Flags that every verb has, which are added with those. */
const COMMON: readonly SettingName[] = ['data'];

const gather = (text: string, before: string[] = []) => [...before, text];

/** All of them, under the headings of their groups. */
export function withSettings(command: Command): Command {
  for (const [group, heading] of Object.entries(GROUPS)) {
    const settings = SETTINGS.filter(
      ({ name, group: own, long }) => own === group && long !== undefined && !COMMON.includes(name),
    );
    if (settings.length === 0) continue;
    command.optionsGroup(`${heading}:`);
    for (const setting of settings) {
      command.addOption(optionOf(setting));
      // What a variable turned on, a flag can turn off.
      if (setting.value === undefined) command.addOption(new Option(negated(setting.long!)).hideHelp());
    }
  }
  return command;
}

/** The flag of one setting, for a verb that has not all of them. */
export function settingOption(name: SettingName, help?: string): Option {
  const setting = SETTINGS.find((each) => each.name === name)!;
  return optionOf({ ...setting, ...(help !== undefined && { help }) });
}

function optionOf({ long, value, help, repeat, choices, default: usual, usually, env }: Described): Option {
  const facts = [
    ...(choices ? [`choices: ${choices.join(', ')}`] : []),
    ...(usual !== undefined || usually !== undefined ? [`default: ${usual ?? usually}`] : []),
    ...(env === undefined ? [] : [`env: ${env}`]),
  ];
  const option = new Option(
    value === undefined ? long! : `${long} <${value}>`,
    `${help}${facts.length > 0 ? ` (${facts.join(', ')})` : ''}`,
  );
  return repeat ? option.argParser(gather) : option;
}

function negated(long: string): string {
  return long.replace(/^--/, '--no-');
}
