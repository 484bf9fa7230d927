import { Sandbox, type Project, type SandboxPage } from '@cay/sdk/client';
import { openClient, type Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, stateText, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { STATE_NAMES, expiryText, parseState, stateOf, type StateFilter } from '../lib/state.ts';
import { formatAge, formatBytes, pairs } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  label?: Record<string, string>;
  state?: StateFilter;
  allProjects?: boolean;
  quiet?: boolean;
}

type Info = Sandbox['info'];

export const lsVerb: Verb = (program) => {
  const command = program
    .command('ls')
    .description('list sandboxes, newest first')
    .option('-l, --label <key=value>', 'only those with this label; may be repeated', pairs())
    .option('--state <state>', `only those in this state: ${STATE_NAMES}`, parseState)
    .option('-A, --all-projects', 'those of every project; needs an admin key')
    .option('-q, --quiet', 'ids alone');
  withCommonOptions(command)
    .addHelpText('after', '\n  cay ls --state active --label team=web\n  cay rm $(cay ls -q --state failed)')
    .action(async (options: Options) => {
      const client = openClient(options);
      const found = await listed(client, options);
      if (options.json) return printJson(found);
      if (options.quiet) return found.forEach(({ id }) => print(id));
      const names = options.allProjects ? await projectNames(client) : undefined;
      print(tableOf(found, names));
    });
};

async function listed(client: Client, options: Options): Promise<Info[]> {
  const found: Info[] = [];
  const label = Object.entries(options.label ?? {}).map(([key, value]) => `${key}=${value}`);
  let cursor: string | undefined;
  do {
    const page = await client.transport.json<SandboxPage>('GET', '/v1/sandboxes', {
      query: {
        label,
        state: options.state?.state,
        cursor,
        ...(options.allProjects && { allProjects: true }),
      },
    });
    found.push(...page.sandboxes);
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
  const { pausedAs } = options.state ?? {};
  return pausedAs === undefined ? found : found.filter((info) => info.pausedAs === pausedAs);
}

async function projectNames({ transport }: Client): Promise<Map<string, string>> {
  const { projects } = await transport.json<{ projects: Project[] }>('GET', '/v1/projects');
  return new Map(projects.map(({ id, name }) => [id, name]));
}

function tableOf(found: Info[], projects: Map<string, string> | undefined): string {
  const now = Date.now();
  const dash = colour.dim('-');
  const columns: Record<string, (info: Info) => string> = {
    ID: ({ id }) => id,
    NAME: ({ name }) => name ?? dash,
    ...(projects && { PROJECT: ({ project }: Info) => printable(projects.get(project) ?? project) }),
    STATE: (info) =>
      stateText(stateOf(info)) +
      (info.reason === undefined ? '' : colour.dim(` (${printable(info.reason)})`)),
    TEMPLATE: ({ template }) => template,
    ...(found.some(({ platform }) => platform !== undefined) && {
      PLATFORM: ({ platform }: Info) => platform ?? dash,
    }),
    RUNTIME: ({ runtime }) => runtime ?? dash,
    LIMITS: ({ limits }) => `${limits.cpus ?? '-'} × ${formatBytes(limits.memoryBytes)}`,
    AGE: ({ createdAtMs }) => formatAge(now - createdAtMs),
    ...(found.some(({ expiresAtMs }) => expiresAtMs !== null) && {
      EXPIRES: (info: Info) => expiryText(info, now) ?? dash,
    }),
    LABELS: ({ labels }) =>
      printable(
        Object.entries(labels)
          .map(([key, value]) => `${key}=${value}`)
          .join(' '),
      ),
  };
  const cells = Object.values(columns);
  return table(
    Object.keys(columns),
    found.map((info) => cells.map((cell) => cell(info))),
  );
}
