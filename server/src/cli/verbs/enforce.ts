import {
  enforcementReports,
  runEnforcementReport,
  type Capabilities,
  type EnforcementReport,
} from '@cay/sdk/client';
import { openClient, type Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { showWaiting } from '../lib/waiting.ts';
import type { Verb } from '../verb.ts';

interface Options extends CommonOptions {
  platform?: string;
  runtime?: string;
  all?: boolean;
}

export const enforceVerb: Verb = (program) => {
  const command = program.command('enforce').description('what a platform really blocks, tried from inside');
  const report = command
    .command('report')
    .description('make a sandbox, try from inside what it must not do, and keep what was seen')
    .option('--platform <name>', 'the platform to try (default: the default platform)')
    .option('--runtime <name>', 'the runtime to try (default: that of the platform)')
    .option('--all', 'show every case, and not only those that are not as they have to be');
  withCommonOptions(report)
    .addHelpText(
      'after',
      '\nExits with 1 if a wall does not hold. Needs an admin key, and takes a minute or two.',
    )
    .action(async (options: Options) => {
      const client = openClient(options);
      const platform = options.platform ?? (await defaultPlatform(client));
      const { runtime } = options;
      const made = await tried(platform, {
        ...client.options,
        ...(runtime !== undefined && { runtime }),
      });
      show(made, options);
    });
  const last = command
    .command('show')
    .description('show the last reports of a platform')
    .option('--platform <name>', 'the platform (default: the default platform)')
    .option('--all', 'show every case');
  withCommonOptions(last).action(async (options: Options) => {
    const client = openClient(options);
    const platform = options.platform ?? (await defaultPlatform(client));
    const reports = await enforcementReports(platform, client.options);
    if (options.json) return printJson({ reports });
    if (reports.length === 0)
      return print(`There is no report about ${printable(platform)} yet: "cay enforce report" makes one.`);
    for (const report of reports) show(report, options);
  });
};

async function tried(...call: Parameters<typeof runEnforcementReport>): Promise<EnforcementReport> {
  using _ = showWaiting(`trying from inside what a sandbox on ${printable(call[0])} can do`);
  return await runEnforcementReport(...call);
}

async function defaultPlatform(client: Client): Promise<string> {
  const { backend, platforms } = await client.transport.json<Capabilities>('GET', '/v1/capabilities');
  return platforms?.[0]?.name ?? backend;
}

function show(report: EnforcementReport, options: Options): void {
  const { platform, runtime, verdict, counts, cases, versions, at, durationMs } = report;
  process.exitCode = verdict === 'not_enforced' ? 1 : 0;
  if (options.json) return printJson(report);
  const shown = cases.filter(({ state }) => options.all || !['blocked', 'works'].includes(state));
  const paint = {
    blocked: colour.green,
    works: colour.green,
    open: colour.red,
    broken: colour.yellow,
    skipped: colour.dim,
  };
  print(`${printable(platform)} on ${printable(runtime)}, ${at} (${Math.round(durationMs / 1000)} s)`);
  print(
    `inside: ${printable(versions.sandboxKernel.slice(0, 60))}; outside: ${printable(versions.hostKernel)}\n`,
  );
  print(table(['AREA', 'CASES', 'BLOCKED', 'WORK', 'OPEN', 'BROKEN', 'SKIPPED'], areasOf(cases)));
  if (shown.length > 0)
    print(
      `\n${table(
        ['STATE', 'CASE', 'WHAT', 'SEEN'],
        shown.map(({ state, id, title, detail }) => [
          paint[state](state),
          printable(id),
          printable(title),
          printable(detail.slice(0, 70)),
        ]),
      )}`,
    );
  print(
    `\n${counts.blocked} blocked, ${counts.works} work, ${counts.open} open, ${counts.broken} broken, ${counts.skipped} skipped`,
  );
  print(
    verdict === 'enforced'
      ? colour.green('All walls that were tried hold.')
      : verdict === 'incomplete'
        ? colour.yellow('All walls that were tried hold; something that is allowed does not work.')
        : colour.red(`${counts.open} walls do not hold.`),
  );
}

const STATES = ['blocked', 'works', 'open', 'broken', 'skipped'] as const;

/** How many cases of each area ended how. */
function areasOf(cases: EnforcementReport['cases']): string[][] {
  const areas = [...new Set(cases.map(({ area }) => area))];
  return areas.map((area) => {
    const of = cases.filter((each) => each.area === area);
    const counted = STATES.map((state) => of.filter((each) => each.state === state).length);
    return [printable(area), `${of.length}`, ...counted.map((count) => (count === 0 ? '–' : `${count}`))];
  });
}
