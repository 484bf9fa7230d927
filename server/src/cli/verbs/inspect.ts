import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, stateText, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatAge, formatBytes } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

export const inspectVerb: Verb = (program) => {
  const command = program
    .command('inspect')
    .description('tell all about a sandbox, its commands included')
    .argument('<sandbox>', 'id, name or beginning of an id');
  withCommonOptions(command).action(async (ref: string, options: CommonOptions) => {
    const sandbox = await openClient(options).sandbox(ref);
    const { info } = sandbox;
    const commands = info.state === 'active' ? await sandbox.commands() : [];
    if (options.json) return printJson({ ...info, commands });
    const { limits } = info;
    const line = (name: string, value: string) => print(`${colour.bold(name.padEnd(11))} ${value}`);
    line('id', info.id);
    if (info.name !== null) line('name', info.name);
    line('state', stateText(info.state) + (info.message === undefined ? '' : `: ${printable(info.message)}`));
    if (info.uid !== null) line('uid', printable(info.uid));
    line('isolation', `${info.runtime ?? '-'} on ${info.backend}`);
    line('template', info.template);
    line(
      'limits',
      `${limits.cpus ?? 'all'} cores, ${formatBytes(limits.memoryBytes)} memory, ${formatBytes(limits.diskBytes)} disk, ${limits.pids ?? 'any'} processes`,
    );
    line('user', `${info.user} in ${printable(info.workdir)}`);
    line(
      'created',
      `${formatAge(Date.now() - info.createdAtMs)} ago, started ${info.incarnation} time${info.incarnation === 1 ? '' : 's'}`,
    );
    if (info.expiresAtMs !== null)
      line('expires', `in ${formatAge(info.expiresAtMs - Date.now())}: ${info.onTimeout}`);
    for (const [key, value] of Object.entries(info.labels)) line('label', printable(`${key}=${value}`));
    for (const { port, visibility, url } of info.ports) line('port', `${port} ${visibility} ${url}`);
    if (commands.length === 0) return;
    print('');
    const rows = commands.map(({ id, pid, end, outputBytes, argv }) => [
      id,
      String(pid),
      end === undefined
        ? colour.green('running')
        : end.kind === 'exited'
          ? `exited ${end.exitCode}`
          : end.kind,
      formatBytes(outputBytes),
      printable(argv.join(' ')).slice(0, 100),
    ]);
    print(table(['COMMAND', 'PID', 'STATUS', 'OUTPUT', 'PROGRAM'], rows));
  });
};
