import type { Project } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { note, print, printJson, table } from '../lib/output.ts';
import { projectNamed } from '../lib/projects.ts';
import { QUOTA_NAMES, parseQuotas, quotaRows } from '../lib/quota-values.ts';
import type { CommonOptions } from '../lib/settings.ts';
import type { Verb } from '../verb.ts';

export const quotaVerb: Verb = (program) => {
  const command = program.command('quota').description('what a project may have in all');

  const show = command
    .command('show')
    .description('show what a project may have')
    .argument('[project]', 'id or name (default: yours, if there is one alone)');
  withCommonOptions(show).action(async (ref: string | undefined, options: CommonOptions) => {
    const project = await projectNamed(openClient(options), ref);
    if (options.json) return printJson({ quota: project.quota, effectiveQuota: project.effectiveQuota });
    print(quotaTable(project));
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
      const project = await openClient(options).transport.json<Project>(
        'PATCH',
        `/v1/projects/${encodeURIComponent(ref)}`,
        { json: { quota: parseQuotas(quotas) } },
      );
      if (options.json) printJson(project);
      else print(quotaTable(project));
    });
};

function quotaTable({ name, quota, effectiveQuota }: Project): string {
  const set = new Map(quotaRows(quota));
  const rows = quotaRows(effectiveQuota).map(([what, value]) => [
    what,
    value,
    set.get(what) === value ? 'the project' : "the server's settings",
  ]);
  if (rows.length === 0) note(`project "${name}" has no quota`);
  return table(['QUOTA', 'AT MOST', 'SET BY'], rows);
}
