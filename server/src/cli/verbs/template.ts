import { CayError, isCayError, type TemplatePage } from '@cay/sdk/client';
import type { Template } from '@cay/sdk/protocol';
import { atSnapshot } from '../lib/at-snapshot.ts';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError, withHint } from '../lib/failure.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { removeEach } from '../lib/remove-each.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';
import { addArchives } from './template-archive.ts';
import { addBuild } from './template-build.ts';

interface SaveOptions extends CommonOptions {
  sandbox?: string;
  replace?: boolean;
}

export const templateVerb: Verb = (program, composition) => {
  const command = program.command('template').description('what sandboxes can start from');

  withCommonOptions(command.command('ls').description('list templates')).action(
    async (options: CommonOptions) => {
      const { templates } = await openClient(options).transport.json<TemplatePage>('GET', '/v1/templates');
      if (options.json) return printJson(templates);
      const rows = templates.map(({ name, snapshot, memory }) => [
        printable(name),
        snapshot ?? colour.dim('-'),
        memory ? 'files, memory' : 'files',
      ]);
      print(table(['NAME', 'SNAPSHOT', 'HAS'], rows));
    },
  );

  const save = command
    .command('save')
    .description(
      'make a template of a snapshot; sandboxes made from it start with what it has, processes included',
    )
    .argument('<name>', 'how it will be called')
    .argument('<snapshot>', 'its id, or with --sandbox its name or turn’s number')
    .option('--sandbox <sandbox>', 'whose snapshot it is')
    .option('--replace', 'point a template of that name to this snapshot');
  withCommonOptions(save).action(async (name: string, snapshot: string, options: SaveOptions) => {
    const client = openClient(options);
    const sandbox = options.sandbox === undefined ? undefined : (await client.sandbox(options.sandbox)).id;
    const json = { snapshot, ...(sandbox !== undefined && { sandbox }), replace: options.replace ?? false };
    const save = () =>
      client.transport.json<Template>('PUT', `/v1/templates/${encodeURIComponent(name)}`, { json });
    const template = await (options.sandbox === undefined ? save() : atSnapshot(options.sandbox, save)).catch(
      (error: unknown) => {
        if (!isCayError(error, 'already_exists')) throw error;
        throw withHint(error, 'choose another name, or give --replace');
      },
    );
    if (options.json) printJson(template);
    else print(template.name);
  });

  addBuild(command, composition);
  addArchives(command);

  withCommonOptions(
    command.command('inspect').description('show all about a template').argument('<name>', 'its name'),
  ).action(async (name: string, options: CommonOptions) => {
    const found = (
      await openClient(options).transport.json<TemplatePage>('GET', '/v1/templates')
    ).templates.find((each) => each.name === name);
    if (!found) throw new CayError('not_found', `Template "${name}" does not exist`);
    if (options.json) return printJson(found);
    for (const [field, value] of linesOf(found))
      print(`${colour.bold(field.padEnd(11))} ${printable(value)}`);
  });

  withCommonOptions(
    command
      .command('tag')
      .description('give what a template is made of a further name')
      .argument('<name>', 'a template')
      .argument('<new...>', 'names for the same, such as web:2'),
  ).action(async (name: string, names: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const found = (await transport.json<TemplatePage>('GET', '/v1/templates')).templates.find(
      (each) => each.name === name,
    );
    if (!found?.snapshot)
      throw new CayError('not_found', `Template "${name}" does not exist, or is the backend’s`);
    const { snapshot, config } = found;
    for (const each of names) {
      const path = `/v1/templates/${encodeURIComponent(each)}`;
      const json = { snapshot, replace: true, ...(config && { config }) };
      const saved = await transport.json<Template>('PUT', path, { json });
      if (options.json) printJson(saved);
      else print(saved.name);
    }
  });

  const remove = command
    .command('rm')
    .description('remove templates; their snapshots stay')
    .argument('<name...>', 'their names');
  withCommonOptions(remove).action(async (names: string[], options: CommonOptions) => {
    const { transport } = openClient(options);
    const { templates } = await transport.json<TemplatePage>('GET', '/v1/templates');
    await removeEach(names, options, {
      kind: 'Template',
      list: 'cay template ls',
      field: 'name',
      find: async (ref) => templates.find(({ name }) => name === ref)?.name,
      async remove(name) {
        if (templates.find((each) => each.name === name)?.snapshot === null)
          throw usageError(
            `Template "${name}" comes with the backend and cannot be removed`,
            '"cay template ls" shows a snapshot for those that were made',
          );
        await transport.json('DELETE', `/v1/templates/${encodeURIComponent(name)}`);
      },
    });
  });
};

function linesOf({ name, snapshot, memory, config }: Template): [string, string][] {
  const command = [...(config?.entrypoint ?? []), ...(config?.cmd ?? [])];
  return [
    ['name', name],
    ['snapshot', snapshot ?? 'none: it comes with the backend'],
    ['has', memory ? 'files, memory' : 'files'],
    ...(config?.user ? [['user', config.user] as [string, string]] : []),
    ...(config?.workdir ? [['workdir', config.workdir] as [string, string]] : []),
    ...(command.length > 0 ? [['command', command.join(' ')] as [string, string]] : []),
    ...Object.entries(config?.env ?? {}).map(([key, value]): [string, string] => ['env', `${key}=${value}`]),
    ...(config?.exposed ?? []).map((port): [string, string] => ['port', port]),
    ...(config?.volumes ?? []).map((volume): [string, string] => ['volume', volume]),
    ...Object.entries(config?.labels ?? {}).map(([key, value]): [string, string] => [
      'label',
      `${key}=${value}`,
    ]),
  ];
}
