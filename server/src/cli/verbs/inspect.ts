import { isCayError, type CommandInfo, type EventPage, type Sandbox } from '@cay/sdk/client';
import { openClient, type Client } from '../lib/client.ts';
import { commandsTable } from '../lib/commands-table.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, note, print, printJson, printable, stateText } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { expiryText, stateOf } from '../lib/state.ts';
import { formatAge, formatBytes, formatDuration } from '../lib/units.ts';
import { whyInactive } from '../lib/why-inactive.ts';
import type { Verb } from '../verb.ts';

type Info = Sandbox['info'];

const GUEST_MS = 10_000;

export const inspectVerb: Verb = (program) => {
  const command = program
    .command('inspect')
    .description('show all about a sandbox, its commands included')
    .argument('<sandbox>', 'id, name or beginning of an id');
  withCommonOptions(command).action(async (ref: string, options: CommonOptions) => {
    const client = openClient(options);
    const sandbox = await client.sandbox(ref);
    const { info } = sandbox;
    const commands = info.state === 'active' ? await commandsOf(sandbox) : [];
    if (options.json) return printJson({ ...info, commands });
    const since = await sinceOf(client, info);
    for (const [name, value] of linesOf(info, since)) print(`${colour.bold(name.padEnd(11))} ${value}`);
    if (commands.length > 0) print(`\n${commandsTable(commands)}`);
  });
};

/** A guest that does not answer is no reason to show nothing. */
async function commandsOf(sandbox: Sandbox): Promise<CommandInfo[]> {
  try {
    return await sandbox.commands({ signal: AbortSignal.timeout(GUEST_MS) });
  } catch (error) {
    if (!isCayError(error, 'cancelled') && !isCayError(error, 'deadline_exceeded')) throw error;
    note(`the sandbox has not answered within ${GUEST_MS / 1000} seconds, so its commands are unknown`);
    return [];
  }
}

/** When and why it was paused or stopped is in its events. */
async function sinceOf({ transport }: Client, { id, state }: Info): Promise<string | undefined> {
  if (state !== 'paused' && state !== 'stopped') return undefined;
  const query = { sandbox: id, tail: 20 };
  const { events } = await transport.json<EventPage>('GET', '/v1/events', { query });
  return whyInactive(state, events, Date.now());
}

function linesOf(info: Info, since: string | undefined): (readonly [string, string])[] {
  const { limits, incarnation } = info;
  const now = Date.now();
  const why = info.message ?? info.reason;
  const idle = idleText(info.idle);
  return [
    ['id', info.id],
    ...(info.name === null ? [] : [['name', info.name] as const]),
    ['state', stateText(stateOf(info)) + (why === undefined ? '' : `: ${printable(why)}`)],
    ...(since === undefined ? [] : [['since', since] as const]),
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
    ...(info.networks.length === 0 ? [] : [['networks', printable(info.networks.join(', '))] as const]),
    ...info.mounts.map((mount) => ['mount', mountText(mount)] as const),
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

function mountText(mount: Info['mounts'][number]): string {
  const isReadOnly = 'readOnly' in mount && mount.readOnly;
  return printable(`${mount.path} is ${sourceOf(mount)}${isReadOnly ? ', read-only' : ''}`);
}

function sourceOf(mount: Info['mounts'][number]): string {
  switch (mount.type) {
    case 'volume':
      return `the volume ${mount.name ?? mount.volume}`;
    case 'tmpfs':
      return 'memory';
    case 'host':
      return `${mount.source} of the machine`;
    case 'bucket':
      return `the bucket ${mount.bucket}`;
  }
}
