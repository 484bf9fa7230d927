import type { Command } from 'commander';

/** What every verb takes that speaks to a server or looks at its data. */
export function withCommonOptions(command: Command, { json = true }: { json?: boolean } = {}): Command {
  command.optionsGroup('Common options:');
  if (json) command.option('--json', 'show the result as JSON');
  command.option('--data <dir>', 'data directory of the server on this machine (CAY_DATA)');
  command.option('--url <url>', 'another server (CAY_URL), with its key in CAY_API_KEY');
  return command;
}
