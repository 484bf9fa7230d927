import { Secrets, type Secret } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson, printable, table } from '../lib/output.ts';
import { readSecret, type SecretSource } from '../lib/read-secret.ts';
import { existsAt, removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

const secretsOf = (options: CommonOptions) => new Secrets(openClient(options).options);

export const secretVerb: Verb = (program) => {
  const command = program
    .command('secret')
    .description('credentials that are put on requests of sandboxes, outside of them');

  const set = command
    .command('set')
    .description('store a secret, or give it another value; the value is read from stdin or a prompt')
    .argument('<name>', 'such as API_TOKEN')
    .option('--from-file <path>', 'read the value from a file')
    .option(
      '--insecure-value <value>',
      'the value itself, which the process list and the history of the shell show',
    );
  withCommonOptions(set)
    .addHelpText(
      'after',
      '\n  cay secret set API_TOKEN < token.txt\n  cay create --secret API_TOKEN=api.example.org',
    )
    .action(async (name: string, options: CommonOptions & SecretSource) => {
      const secret = await secretsOf(options).set(name, await readSecret(name, options));
      if (options.json) return printJson(secret);
      print(secret.name);
      note(`version ${secret.version}, ${formatBytes(secret.bytes)}`);
    });

  withCommonOptions(command.command('ls').description('list secrets, without their values')).action(
    async (options: CommonOptions) => {
      const secrets = await secretsOf(options).list();
      if (options.json) return printJson(secrets);
      print(table(['NAME', 'VERSION', 'SIZE', 'SET'], secrets.map(cells)));
    },
  );

  const show = command
    .command('show')
    .description('show a secret without its value, and whose network policies use it')
    .argument('<name>', 'its name');
  withCommonOptions(show).action(async (name: string, options: CommonOptions) => {
    const secret = await secretsOf(options).get(name);
    if (options.json) return printJson(secret);
    print(table(['NAME', 'VERSION', 'SIZE', 'SET'], [cells(secret)]));
    print(
      secret.usedBy.length === 0 ? '\nno network policy uses it' : `\nused by ${secret.usedBy.join(', ')}`,
    );
  });

  const remove = command
    .command('rm')
    .description('remove secrets')
    .argument('<name...>', 'their names')
    .option(
      '-f, --force',
      'also those that network policies use: requests that they would be put on are refused',
    );
  withCommonOptions(remove).action(async (names: string[], options: CommonOptions & { force?: boolean }) => {
    const secrets = secretsOf(options);
    await removeEach(names, options, {
      kind: 'Secret',
      list: 'cay secret ls',
      field: 'name',
      find: existsAt((name) => secrets.get(name)),
      remove: (name) => secrets.remove(name, { force: options.force ?? false }),
    });
  });
};

function cells({ name, version, bytes, updatedAtMs }: Secret): string[] {
  return [printable(name), String(version), formatBytes(bytes), `${formatAge(Date.now() - updatedAtMs)} ago`];
}
