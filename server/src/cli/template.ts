import type { TemplatePage } from '@cay/sdk/client';
import { openClient } from './client.ts';
import { withCommonOptions } from './common-options.ts';
import { print, printJson, printable, table } from './output.ts';
import type { CommonOptions } from './settings.ts';
import type { Verb } from './verb.ts';

export const templateVerb: Verb = (program) => {
  const command = program.command('template').description('what sandboxes can start from');
  withCommonOptions(command.command('ls').description('list templates')).action(async (options: CommonOptions) => {
    const { templates } = await openClient(options).transport.json<TemplatePage>('GET', '/v1/templates');
    if (options.json) return printJson(templates);
    print(
      table(
        ['NAME'],
        templates.map(({ name }) => [printable(name)]),
      ),
    );
  });
};
