import type { Project, ProjectUsage } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, table } from '../lib/output.ts';
import { projectNamed } from '../lib/projects.ts';
import { QUOTA_NAMES, parseQuotas, quotaRows, usageRows } from '../lib/quota-values.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

const pathOf = (project: string) => `/v1/projects/${encodeURIComponent(project)}`;

export const quotaVerb: Verb = (program) => {
  const command = program.command('quota').description('what a project may have in all');

  const show = command
    .command('show')
    .description('show what a project has, and may have')
    .argument('[project]', 'id or name (default: yours, if there is one alone)');
  withCommonOptions(show).action(async (ref: string | undefined, options: CommonOptions) => {
    const client = openClient(options);
    const project = await projectNamed(client, ref);
    const usage = await client.transport.json<ProjectUsage>('GET', `${pathOf(project.id)}/usage`);
    if (options.json)
      return printJson({ quota: project.quota, effectiveQuota: project.effectiveQuota, usage });
    print(quotaTable(project, usage));
  });

  const set = command
    .command('set')
    .description('change what a project may have; needs an admin key')
    .argument('<project>', 'id or name')
    .argument('<quota...>', `NAME=VALUE of ${QUOTA_NAMES}; "none" is the server's default`);
  withCommonOptions(set)
    .addHelpText(
      'after',
      '\n  cay quota set team-a sandboxes=20 memory=16g\n  cay quota set team-a memory=none',
    )
    .action(async (ref: string, quotas: string[], options: CommonOptions) => {
      const { transport } = openClient(options);
      const project = await transport.json<Project>('PATCH', pathOf(ref), {
        json: { quota: parseQuotas(quotas) },
      });
      if (options.json) printJson(project);
      else
        print(quotaTable(project, await transport.json<ProjectUsage>('GET', `${pathOf(project.id)}/usage`)));
    });
};

function quotaTable({ quota }: Project, usage: ProjectUsage): string {
  const set = new Map(quotaRows(quota));
  const rows = usageRows(usage).map(([what, used, limit]) => [
    what,
    used,
    limit ?? colour.dim('no limit'),
    set.has(what) ? 'the project' : limit === undefined ? '-' : "the server's settings",
  ]);
  return table(['QUOTA', 'IN USE', 'AT MOST', 'SET BY'], rows);
}
