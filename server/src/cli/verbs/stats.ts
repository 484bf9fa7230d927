import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, type Stats } from '@cay/sdk/client';
import { Option } from 'commander';
import { openClient, type Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { chartRow } from '../lib/chart.ts';
import { print, printJson, table, tableWithin } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatBytes, parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { once?: boolean; follow?: boolean; interval: number; since?: number };

/** Between the two readings of a single answer. */
const ONCE_MS = 250;

interface Reading {
  sandbox: Sandbox;
  stats: Stats;
  /** In percent of one core, since the reading before; null for the first. */
  cpuPercent: number | null;
}

export const statsVerb: Verb = (program) => {
  const command = program
    .command('stats')
    .description('show what sandboxes use: live in a terminal, once elsewhere')
    .argument('[sandbox...]', 'ids, names or beginnings of ids; every active one if absent')
    .addOption(new Option('--once', 'one reading, then end').conflicts('follow'))
    .option('-f, --follow', 'one reading after the other, also without a terminal')
    .option(
      '--since <time>',
      'what it used for so long, such as 1h, also of a sandbox that does not run',
      parseDuration,
    )
    .option('--interval <time>', 'between readings', parseDuration, 1000);
  withCommonOptions(command).action(async (refs: string[], options: Options) => {
    const client = openClient(options);
    if (options.since !== undefined) return showHistory(client, refs, options.since, options.json ?? false);
    const live = process.stdout.isTTY && !options.json && !options.once;
    const once = !live && !options.follow;
    let before = new Map<string, Stats>();
    if (once) {
      // The share of a processor needs two readings.
      const first = await readAll(client, refs, before);
      before = new Map(first.map(({ sandbox, stats }) => [sandbox.id, stats]));
      await sleep(ONCE_MS);
    }
    for (;;) {
      const readings = await readAll(client, refs, before);
      before = new Map(readings.map(({ sandbox, stats }) => [sandbox.id, stats]));
      if (options.json) show(readings);
      else if (live) redraw(text(readings, windowOf(process.stdout)));
      else print(text(readings));
      if (once) return;
      await sleep(options.interval);
    }
  });
};

/** For each sandbox what it takes on disk, and charts of what it used. */
async function showHistory(client: Client, refs: string[], since: number, json: boolean): Promise<void> {
  const sandboxes = await sandboxesOf(client, refs);
  const all = await Promise.all(
    sandboxes.map(async (sandbox) => ({
      sandbox,
      history: await sandbox.statsHistory({ sinceMs: Date.now() - since }),
      space: await sandbox.space(),
    })),
  );
  if (json) {
    printJson(
      all.map(({ sandbox, history, space }) => ({
        id: sandbox.id,
        name: sandbox.info.name,
        space,
        ...history,
      })),
    );
    return;
  }
  for (const { sandbox, history, space } of all) {
    const { snapshots } = space;
    print(
      `${sandbox.info.name ?? sandbox.id}  ${sandbox.info.state}, ${formatBytes(space.fileBytes)} of files, ` +
        `${snapshots.count} snapshots with ${formatBytes(snapshots.bytes)}`,
    );
    if (history.samples.length === 0) {
      print(`  nothing was read since then; it is read every ${history.intervalMs / 1000} s while it runs`);
      continue;
    }
    const times = { fromMs: Date.now() - since, toMs: Date.now(), samples: history.samples };
    const rows = [
      chartRow(
        'cpu',
        times,
        ({ cpuPercent }) => cpuPercent,
        (value) => `${value.toFixed(0)} %`,
      ),
      chartRow('memory', times, ({ memoryBytes }) => memoryBytes, formatBytes),
      chartRow('disk', times, ({ diskBytes }) => diskBytes, formatBytes),
      chartRow(
        'pids',
        times,
        ({ pids }) => pids,
        (value) => value.toFixed(0),
      ),
    ];
    print(table(['', 'SINCE THEN', 'NOW', 'MOST'], rows));
  }
}

async function sandboxesOf(client: Client, refs: string[]): Promise<Sandbox[]> {
  const sandboxes: Sandbox[] = [];
  if (refs.length > 0) for (const ref of refs) sandboxes.push(await client.sandbox(ref));
  else
    for await (const sandbox of Sandbox.list({ ...client.options, state: 'active' })) sandboxes.push(sandbox);
  return sandboxes;
}

async function readAll(client: Client, refs: string[], before: Map<string, Stats>): Promise<Reading[]> {
  const sandboxes = await sandboxesOf(client, refs);
  const readings = await Promise.all(
    sandboxes.map(async (sandbox) => {
      // A sandbox that was not named may end meanwhile.
      const stats = await sandbox.stats().catch((error: unknown) => {
        if (refs.length > 0) throw error;
      });
      if (!stats) return undefined;
      const last = before.get(sandbox.id);
      const elapsed = last ? stats.atMs - last.atMs : 0;
      const cpuPercent =
        last && elapsed > 0 ? Math.max(0, ((stats.cpuUsageMs - last.cpuUsageMs) / elapsed) * 100) : null;
      return { sandbox, stats, cpuPercent };
    }),
  );
  return readings.filter((reading) => reading !== undefined);
}

function show(readings: Reading[]): void {
  printJson(
    readings.map(({ sandbox, stats, cpuPercent }) => ({
      id: sandbox.id,
      name: sandbox.info.name,
      cpuPercent,
      ...stats,
    })),
  );
}

/** Writes over what is in the window, and clears the rest of it: clearing it first would flicker. */
function redraw(lines: string): void {
  print(`\u001b[H${lines.replaceAll('\n', '\u001b[K\n')}\u001b[J`);
}

const windowOf = ({ columns, rows }: NodeJS.WriteStream) => ({ columns, rows });

function text(readings: Reading[], window = { columns: Infinity, rows: Infinity }): string {
  const rows = readings.map(({ sandbox, stats, cpuPercent }) => [
    sandbox.info.name ?? sandbox.id,
    cpuPercent === null ? '-' : `${cpuPercent.toFixed(0)} %`,
    `${(stats.cpuUsageMs / 1000).toFixed(1)} s`,
    `${formatBytes(stats.memoryBytes)} / ${formatBytes(stats.memoryLimitBytes)}`,
    `${formatBytes(stats.diskBytes)} / ${formatBytes(stats.diskLimitBytes)}`,
    String(stats.pids),
    `${formatBytes(stats.networkRxBytes)} / ${formatBytes(stats.networkTxBytes)}`,
    `${formatBytes(stats.diskReadBytes)} / ${formatBytes(stats.diskWriteBytes)}`,
    String(stats.oomKills),
  ]);
  return tableWithin(
    ['SANDBOX', 'CPU', 'CPU TIME', 'MEMORY', 'DISK', 'PIDS', 'NETWORK IN / OUT', 'DISK IN / OUT', 'OOM'],
    rows,
    window,
  );
}
