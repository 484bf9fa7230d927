/** The command line's reference as Markdown, from the same tree that parses it. */
import { ERRORS } from '@cay/sdk/client';
import type { Command } from 'commander';

const EXIT_CODES: readonly (readonly [string, string])[] = [
  ['0', 'Success.'],
  ['1', '`doctor` found that sandboxes cannot work here.'],
  ['3', '`status`: the server does not run.'],
];

const COMMAND_CODES: readonly (readonly [string, string])[] = [
  ["the command's own", 'It ended by itself.'],
  ['124', 'It ran into its `--timeout`; `wait`: it had not ended when the time was up.'],
  [
    '125',
    'Cay failed to run it, or the sandbox went away under it. The message on standard error says which.',
  ],
  ['126', 'It was found and cannot be executed.'],
  ['127', 'It was not found.'],
  [
    '128 + n',
    'Signal n ended it: 130 for SIGINT, 143 for SIGTERM, 141 when the reader of its output is gone.',
  ],
  ['137', 'It ran out of memory, or was killed.'],
];

export function cliReference(program: Command): string {
  return `# Command line

Generated from the command line itself by \`node scripts/write-cli-reference.ts\`; a test checks that it is current.

\`\`\`
${program.helpInformation().trim()}
\`\`\`

A sandbox is named by its id, its name or the beginning of its id, wherever one is asked for. \`--json\` gives every result as
JSON. Colour and tables are for terminals; what is piped is plain, and so is everything with \`NO_COLOR\` set. Failures are one
line \`error: …\` on standard error, and a line \`hint: …\` where something can be done about it.

## Environment

| variable | meaning |
|---|---|
| \`CAY_DATA\` | the data directory: \`/var/lib/cay\` for root, else \`~/.local/share/cay\` |
| \`CAY_LISTEN\` | where \`up\` listens: \`127.0.0.1:7070\` |
| \`CAY_URL\`, \`CAY_API_KEY\` | another server, and its key; without them the one of the data directory |
| \`CAY_…\` | [the settings of the server](settings.md), for \`up\` and also when \`run\` starts the server |
| \`NO_COLOR\`, \`FORCE_COLOR\` | never, or always, in colour |

## Exit codes

\`run\`, \`exec\`, \`shell\`, \`attach\` and \`wait\` exit as a shell would for the command:

| code | meaning |
|---|---|
${COMMAND_CODES.map(([code, meaning]) => `| ${code} | ${meaning} |`).join('\n')}

The other verbs, and flags that cannot be understood:

| code | meaning |
|---|---|
${[...EXIT_CODES, ...errorCodes()].map(([code, meaning]) => `| ${code} | ${meaning} |`).join('\n')}

${program.commands
  .filter((command) => command.name() !== 'help')
  .flatMap((command) => [command, ...command.commands])
  .filter((command) => command.commands.length === 0)
  .map(section)
  .join('\n\n')}
`;
}

function errorCodes(): (readonly [string, string])[] {
  const codes = new Map<number, string[]>();
  for (const [code, { exitCode }] of Object.entries(ERRORS))
    codes.set(exitCode, [...(codes.get(exitCode) ?? []), `\`${code}\``]);
  return [...codes]
    .sort(([a], [b]) => a - b)
    .map(([exitCode, names]) => [String(exitCode), `The error ${names.join(' or ')}.`] as const);
}

function section(command: Command): string {
  const name = command.parent?.parent ? `${command.parent.name()} ${command.name()}` : command.name();
  let after = '';
  // What was added with `addHelpText` is written, not returned.
  command.configureOutput({ writeOut: (text) => (after += text) });
  command.outputHelp();
  command.configureOutput({ writeOut: (text) => process.stdout.write(text) });
  return `## cay ${name}\n\n\`\`\`\n${after.trim().replaceAll(/[ \t]+$/gm, '')}\n\`\`\``;
}
