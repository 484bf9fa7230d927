import type { CreatedKey, Key } from '@cay/sdk/client';
import { Option } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import { projectsOf } from '../lib/projects.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type CreateOptions = CommonOptions & { admin?: boolean; role: Key['role']; project?: string };

export const keyVerb: Verb = (program) => {
  const command = program.command('key').description('API keys');

  withCommonOptions(command.command('ls').description('list keys')).action(async (options: CommonOptions) => {
    const client = openClient(options);
    const { keys } = await client.transport.json<{ keys: Key[] }>('GET', '/v1/keys');
    if (options.json) return printJson(keys);
    const projects = new Map((await projectsOf(client)).map(({ id, name }) => [id, name]));
    const now = Date.now();
    const rows = keys.map((key) => [
      key.id,
      printable(key.name),
      key.role,
      printable(projects.get(key.project) ?? key.project),
      key.hint,
      `${formatAge(now - key.createdAtMs)} ago`,
      key.lastUsedAtMs === null ? 'never' : `${formatAge(now - key.lastUsedAtMs)} ago`,
    ]);
    print(table(['ID', 'NAME', 'ROLE', 'PROJECT', 'KEY', 'CREATED', 'USED'], rows));
  });

  const create = command
    .command('create')
    .description('make a key and print it, this once')
    .argument('<name>', 'what it is for')
    .addOption(
      new Option('--role <role>', 'an admin may make keys and projects; metrics may read /metrics alone')
        .choices(['member', 'admin', 'metrics'])
        .default('member'),
    )
    .option('--admin', 'the same as --role admin')
    .option('--project <project>', 'id or name (default: that of the key in use)');
  withCommonOptions(create)
    .addHelpText(
      'after',
      '\n  cay key create ci --project team-a\n  cay key create second-admin --role admin',
    )
    .action(async (name: string, options: CreateOptions) => {
      const { admin, role, project } = options;
      const created = await openClient(options).transport.json<CreatedKey>('POST', '/v1/keys', {
        json: { name, role: admin ? 'admin' : role, ...(project !== undefined && { project }) },
      });
      if (options.json) return printJson(created);
      print(created.secret);
      note(colour.dim(`${created.key.id}; shown this once`));
    });

  const remove = command
    .command('rm')
    .description('revoke keys')
    .argument('<key-id...>', 'their ids, as "cay key ls" shows them')
    .option('--tokens', 'revoke the tokens and signed addresses of their projects, too');
  withCommonOptions(remove).action(async (ids: string[], options: CommonOptions & { tokens?: boolean }) => {
    const { transport } = openClient(options);
    for (const id of ids) {
      await transport.json('DELETE', `/v1/keys/${encodeURIComponent(id)}`, {
        ...(options.tokens && { query: { tokens: true } }),
      });
      if (options.json) printJson({ id });
      else print(id);
    }
  });
};
