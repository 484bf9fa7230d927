import type { CreatedKey, Key } from '@cay/sdk/client';
import { Option } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { usageError } from '../lib/failure.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import { projectsOf } from '../lib/projects.ts';
import { removeEach } from '../lib/remove-each.ts';
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
    .argument('<key...>', 'their ids or names, as "cay key ls" shows them')
    .option('--tokens', 'revoke the tokens and signed addresses of their projects, too');
  withCommonOptions(remove).action(async (refs: string[], options: CommonOptions & { tokens?: boolean }) => {
    const { transport } = openClient(options);
    const { keys } = await transport.json<{ keys: Key[] }>('GET', '/v1/keys');
    await removeEach(refs, options, {
      kind: 'Key',
      list: 'cay key ls',
      field: 'id',
      find: async (ref) => keyOf(ref, keys),
      remove: (id) =>
        transport.json('DELETE', `/v1/keys/${encodeURIComponent(id)}`, {
          ...(options.tokens && { query: { tokens: true } }),
        }),
    });
  });
};

function keyOf(ref: string, keys: readonly Key[]): string | undefined {
  const found = keys.filter(({ id, name }) => id === ref || name === ref);
  if (found.length > 1)
    throw usageError(
      `${found.length} keys are named "${ref}"`,
      `give an id: ${found.map(({ id }) => id).join(', ')}`,
    );
  return found[0]?.id;
}
