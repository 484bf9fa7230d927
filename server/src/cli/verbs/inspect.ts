import type { Sandbox } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { commandsTable } from '../lib/commands-table.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson, printable, stateText } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { expiryText, stateOf } from '../lib/state.ts';
import { formatAge, formatBytes, formatDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Info = Sandbox['info'];

export const inspectVerb: Verb = (program) => {
  const command = program
    .command('inspect')
    .description('show all about a sandbox, its commands included')
    .argument('<sandbox>', 'id, name or beginning of an id');
  withCommonOptions(command).action(async (ref: string, options: CommonOptions) => {
    const sandbox = await openClient(options).sandbox(ref);
    const { info } = sandbox;
    const commands = info.state === 'active' ? await sandbox.commands() : [];
    if (options.json) return printJson({ ...info, commands });
    for (const [name, value] of linesOf(info)) print(`${colour.bold(name.padEnd(11))} ${value}`);
    if (commands.length > 0) print(`\n${commandsTable(commands)}`);
  });
};

function linesOf(info: Info): (readonly [string, string])[] {
  const { limits, incarnation } = info;
  const now = Date.now();
  const why = info.message ?? info.reason;
  const idle = idleText(info.idle);
  return [
    ['id', info.id],
    ...(info.name === null ? [] : [['name', info.name] as const]),
    ['state', stateText(stateOf(info)) + (why === undefined ? '' : `: ${printable(why)}`)],
    ['timeout', timeoutText(info, now)],
    ...(idle === '' ? [] : [['when idle', idle] as const]),
    ...(info.leaseUntilMs !== null && info.leaseUntilMs > now
      ? [['lease', `not idle for ${formatAge(info.leaseUntilMs - now)} more`] as const]
      : []),
    ...(info.uid === null ? [] : [['uid', printable(info.uid)] as const]),
    ['isolation', `${info.runtime ?? '-'} on ${info.backend}`],
    ['template', info.template],
    [
      'limits',
      `${limits.cpus ?? 'all'} cores, ${formatBytes(limits.memoryBytes)} memory, ${formatBytes(limits.diskBytes)} disk, ${limits.pids ?? 'any'} processes`,
    ],
    ['user', `${info.user} in ${printable(info.workdir)}`],
    [
      'created',
      `${formatAge(now - info.createdAtMs)} ago, started ${incarnation} time${incarnation === 1 ? '' : 's'}`,
    ],
    ...(info.turn > 0 ? [['turn', String(info.turn)] as const] : []),
    ...Object.entries(info.labels).map(([key, value]) => ['label', printable(`${key}=${value}`)] as const),
    ...info.ports.map((port) => ['port', `${port.port} ${port.visibility} ${port.openUrl}`] as const),
  ];
}

function timeoutText(info: Info, now: number): string {
  if (info.timeoutMs === null) return 'none';
  const expiry = expiryText(info, now);
  return `${info.onTimeout} after ${formatDuration(info.timeoutMs)}${expiry === undefined ? '' : ` (${expiry})`}`;
}

function idleText({
  freezeAfterMs,
  suspendAfterMs,
  hibernateAfterMs,
  archiveAfterMs,
  destroyAfterMs,
}: Info['idle']) {
  const rungs = [
    ['freeze', freezeAfterMs],
    ['suspend', suspendAfterMs],
    ['hibernate', hibernateAfterMs],
    ['archive', archiveAfterMs],
    ['destroy', destroyAfterMs],
  ] as const;
  return rungs
    .flatMap(([what, ms]) => (ms === null ? [] : [`${what} after ${formatDuration(ms)}`]))
    .join(', ');
}
