import type { CreatedKey, Key } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const keyVerb: Verb = (program) => {
  const command = program.command('key').description('API keys');

  withCommonOptions(command.command('ls').description('list keys')).action(async (options: CommonOptions) => {
    const { keys } = await openClient(options).transport.json<{ keys: Key[] }>('GET', '/v1/keys');
    if (options.json) return printJson(keys);
    const now = Date.now();
    const rows = keys.map((key) => [
      key.id,
      printable(key.name),
      key.role,
      key.project,
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
    .option('--admin', 'may make keys and projects')
    .option('--project <project>', 'id or name (default: that of the key in use)');
  withCommonOptions(create).action(
    async (name: string, options: CommonOptions & { admin?: boolean; project?: string }) => {
      const { admin, project } = options;
      const created = await openClient(options).transport.json<CreatedKey>('POST', '/v1/keys', {
        json: { name, role: admin ? 'admin' : 'member', ...(project !== undefined && { project }) },
      });
      if (options.json) return printJson(created);
      print(created.secret);
      note(colour.dim(`${created.key.id}; shown this once`));
    },
  );

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
