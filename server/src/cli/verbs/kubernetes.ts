import { isId, newId, type SandboxId } from '@cay/sdk/protocol';
import { Option } from 'commander';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { usageError } from '../lib/failure.ts';
import { print, printJson, table } from '../lib/output.ts';
import { dataDirOf } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

interface Options {
  backend: string;
  json?: boolean;
  data?: string;
}

interface RenderOptions extends Options {
  account: string;
  project?: string;
  sandbox?: string | true;
  id?: string;
}

const DEFAULT_ACCOUNT = 'cay/cay';

export const kubernetesVerb: Verb = (program, composition) => {
  const { clusterBackends, declarationsOf } = composition;
  const command = program.command('kubernetes').description('what the server makes in a Kubernetes cluster');
  const backend = () =>
    new Option('--backend <name>', 'which backend')
      .choices([...clusterBackends])
      .default(clusterBackends[0])
      .env('CAY_KUBERNETES_BACKEND');
  const engineOf = (options: Options) => join(dataDirOf(options), 'engine');

  command
    .command('render')
    .description(
      'print the objects that would be applied, with the settings CAY_KUBERNETES_… of this environment',
    )
    .addOption(backend())
    .option(
      '--account <namespace/name>',
      'the account of the server, which gets the rights it needs',
      DEFAULT_ACCOUNT,
    )
    .option(
      '--project <id>',
      'in their place what the namespace of this project has; with --sandbox: a sandbox there',
    )
    .option(
      '--sandbox [file]',
      'in their place what a sandbox would be; the file has its spec as JSON, "-" is standard input',
    )
    .option('--id <id>', 'the id of that sandbox (default: a new one)')
    .option('--json', 'as a List in JSON, and not as YAML')
    .option('--data <dir>', 'data directory of the server, by which its objects are told apart (CAY_DATA)')
    .action(async (options: RenderOptions) => {
      const [namespace, name, ...rest] = options.account.split('/');
      if (!namespace || !name || rest.length > 0)
        throw usageError(`"${options.account}" is not NAMESPACE/NAME`);
      const sandbox =
        options.sandbox === undefined
          ? undefined
          : { id: idOf(options.id), spec: await specIn(options.sandbox) };
      const { render } = await declarationsOf(options.backend, {
        dir: engineOf(options),
        withSandbox: sandbox !== undefined,
      });
      const objects = await render({
        account: { namespace, name },
        project: projectOf(options.project),
        sandbox,
      });
      if (options.json) return printJson({ apiVersion: 'v1', kind: 'List', items: objects });
      print((await composition.toYaml(objects)).trimEnd());
    });

  command
    .command('kinds')
    .description('list the kinds of objects that each backend makes')
    .option('--json', 'show the result as JSON')
    .action(async (options: Pick<Options, 'json'>) => {
      const all = clusterBackends.map(async (name) => {
        const { ownedKinds } = await declarationsOf(name, {
          dir: engineOf({ backend: name }),
          withSandbox: false,
        });
        return { backend: name, kinds: ownedKinds };
      });
      const rows = await Promise.all(all);
      if (options.json) return printJson(rows);
      print(
        table(
          ['BACKEND', 'KINDS'],
          rows.map(({ backend: name, kinds }) => [name, kinds.join(', ')]),
        ),
      );
    });
};

function idOf(text: string | undefined): SandboxId {
  if (text === undefined) return newId('sbx');
  if (!isId('sbx', text)) throw usageError(`"${text}" is no id of a sandbox`);
  return text as SandboxId;
}

function projectOf(text: string | undefined): string | undefined {
  if (text !== undefined && !isId('prj', text)) throw usageError(`"${text}" is no id of a project`);
  return text;
}

async function specIn(file: string | true): Promise<object> {
  if (file === true) return {};
  const text = await readFile(file === '-' ? '/dev/stdin' : file, 'utf8').catch((error: Error) => {
    throw usageError(`Cannot read "${file}": ${error.message}`);
  });
  try {
    const spec: unknown = JSON.parse(text);
    if (spec !== null && typeof spec === 'object') return spec;
  } catch {
    // Reported below.
  }
  throw usageError(`"${file}" has no spec as JSON`);
}
