import type { Project } from '@cay/sdk/client';
import { Argument } from 'commander';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { confirm } from '../lib/confirm.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import { projectNamed, projectsOf } from '../lib/projects.ts';
import { parseQuotas, quotaRows, shownText } from '../lib/quota-values.ts';
import { POLICIES } from '../lib/sandbox-options.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

const pathOf = (project: string) => `/v1/projects/${encodeURIComponent(project)}`;

export const projectVerb: Verb = (program) => {
  const command = program
    .command('project')
    .description('projects: each has its own sandboxes, keys and quota');

  withCommonOptions(
    command.command('ls').description('list projects; without an admin key, your own'),
  ).action(async (options: CommonOptions) => {
    const projects = await projectsOf(openClient(options));
    if (options.json) return printJson(projects);
    const now = Date.now();
    const rows = projects.map(({ id, name, quota, createdAtMs }) => [
      printable(name),
      id,
      quotaRows(quota)
        .map(([what, value]) => `${what}=${value}`)
        .join(' ') || colour.dim('-'),
      `${formatAge(now - createdAtMs)} ago`,
    ]);
    print(table(['NAME', 'ID', 'QUOTA', 'CREATED'], rows));
  });

  const show = command
    .command('show')
    .description('show a project, and the quotas that hold for it')
    .argument('[project]', 'id or name (default: yours, if there is one alone)');
  withCommonOptions(show).action(async (ref: string | undefined, options: CommonOptions) => {
    const project = await projectNamed(openClient(options), ref);
    if (options.json) return printJson(project);
    print(`${colour.bold('name'.padEnd(8))} ${printable(project.name)}`);
    print(`${colour.bold('id'.padEnd(8))} ${project.id}`);
    print(`${colour.bold('created'.padEnd(8))} ${formatAge(Date.now() - project.createdAtMs)} ago`);
    const rows = quotaRows(project.effectiveQuota, shownText);
    if (rows.length > 0) print(`\n${table(['QUOTA', 'AT MOST'], rows)}`);
  });

  const create = command
    .command('create')
    .description('make a project, and print its id; needs an admin key')
    .argument('<name>', 'how it is called')
    .argument('[quota...]', 'what it may have, such as sandboxes=10 memory=8g');
  withCommonOptions(create)
    .addHelpText(
      'after',
      '\n  cay project create team-a sandboxes=20 memory=16g\n  cay key create ci --project team-a',
    )
    .action(async (name: string, quotas: string[], options: CommonOptions) => {
      const quota = parseQuotas(quotas);
      const project = await openClient(options).transport.json<Project>('POST', '/v1/projects', {
        json: { name, ...(quotas.length > 0 && { quota }) },
      });
      if (options.json) printJson(project);
      else print(project.id);
    });

  const network = command
    .command('network')
    .description('bound what the sandboxes of a project reach; needs an admin key')
    .argument('<project>', 'id or name')
    .addArgument(
      new Argument(
        '<policy>',
        'the most that they reach; "any" is as much as the installation allows',
      ).choices([...POLICIES, 'any']),
    );
  withCommonOptions(network).action(async (ref: string, policy: string, options: CommonOptions) => {
    const project = await openClient(options).transport.json<Project>('PATCH', pathOf(ref), {
      json: { network: policy === 'any' ? null : policy },
    });
    if (options.json) printJson(project);
    else print(project.name);
  });

  const remove = command
    .command('rm')
    .description('remove a project that has no sandboxes, with its keys; needs an admin key')
    .argument('<project>', 'id or name')
    .option('-y, --yes', 'do not ask');
  withCommonOptions(remove).action(async (ref: string, options: CommonOptions & { yes?: boolean }) => {
    const client = openClient(options);
    const project = await projectNamed(client, ref);
    await confirm(`Remove project "${project.name}" and revoke its keys?`, options);
    await client.transport.json('DELETE', pathOf(project.id));
    if (options.json) printJson({ id: project.id, name: project.name });
    else print(project.name);
  });
};
