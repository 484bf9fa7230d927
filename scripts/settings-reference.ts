/** The reference of settings as Markdown, from the schema that reads them. */
import { SETTINGS } from '../server/src/settings.ts';
import { GROUPS } from '../server/src/settings/setting.ts';

const INTRODUCTION = `# Settings of the server

Generated from \`server/src/settings.ts\` by \`node scripts/generate-api-reference.ts\`; a test checks that it is current.

A setting is a flag of \`cay up\`, a variable of the environment, or both.
A flag beats its variable, and an empty variable is none.
A flag without a value is on; \`--no-…\` turns off what a variable turned on.
Its variable is \`1\` or \`0\`.
Where a list is taken, the flag may be repeated, and a variable has commas.

The server warns about a variable that begins with \`CAY_\` and is none of these.
A value that cannot be keeps it from starting, with an error that names the flag or the variable.

What is secret belongs into its variable, because everybody on the machine may see the flags of a process.
\`cay up --detach\` hands secrets on in the environment alone, and the server removes them from the environment that the programs it starts get.

\`cay run\` and other verbs that start a server take its settings from the variables.
The variables of clients, \`CAY_URL\` and \`CAY_API_KEY\`, are in [the command line](cli.md#environment).
`;

export function settingsReference(): string {
  const sections = Object.entries(GROUPS).map(([group, heading]) => {
    const rows = SETTINGS.filter((setting) => setting.group === group).map(
      ({ long, env, value, help, default: usual, usually, choices, secret }) => {
        const flag = long === undefined ? '' : code(value === undefined ? long : `${long} <${value}>`);
        const notes = [help, ...(choices ? [`one of ${choices.map(code).join(', ')}`] : [])];
        if (secret) notes.push('secret');
        return `| ${flag} | ${env === undefined ? '' : code(env)} | ${usual === undefined ? escaped(usually ?? '') : code(usual)} | ${escaped(notes.join('; '))} |`;
      },
    );
    return `## ${heading}\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n${rows.join('\n')}\n`;
  });
  return [INTRODUCTION, ...sections].join('\n');
}

const code = (text: string) => `\`${text.replaceAll('|', String.raw`\|`)}\``;

function escaped(text: string): string {
  return text.replaceAll('|', String.raw`\|`).replaceAll('*', String.raw`\*`);
}
