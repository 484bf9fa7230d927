import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox, type Stats } from '@cay/sdk/client';
import { openClient, type Client } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { print, printJson, table } from '../lib/output.ts';
import type { CommonOptions } from '../lib/settings.ts';
import { formatBytes, parseDuration } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type Options = CommonOptions & { once?: boolean; interval: number };

/** Between the two readings of `--once`. */
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
    .description('show what sandboxes use, live')
    .argument('[sandbox...]', 'ids, names or beginnings of ids; every active one if absent')
    .option('--once', 'one reading, then end')
    .option('--interval <time>', 'between readings', parseDuration, 1000);
  withCommonOptions(command).action(async (refs: string[], options: Options) => {
    const client = openClient(options);
    const live = process.stdout.isTTY && !options.json && !options.once;
    let before = new Map<string, Stats>();
    if (options.once) {
      // The share of a processor needs two readings.
      const first = await readAll(client, refs, before);
      before = new Map(first.map(({ sandbox, stats }) => [sandbox.id, stats]));
      await sleep(ONCE_MS);
    }
    for (;;) {
      const readings = await readAll(client, refs, before);
      before = new Map(readings.map(({ sandbox, stats }) => [sandbox.id, stats]));
      if (options.json) show(readings);
      else print(`${live ? '\u001b[H\u001b[2J' : ''}${text(readings)}`);
      if (options.once) return;
      await sleep(options.interval);
    }
  });
};

async function readAll(client: Client, refs: string[], before: Map<string, Stats>): Promise<Reading[]> {
  const sandboxes: Sandbox[] = [];
  if (refs.length > 0) for (const ref of refs) sandboxes.push(await client.sandbox(ref));
  else
    for await (const sandbox of Sandbox.list({ ...client.options, state: 'active' })) sandboxes.push(sandbox);
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

function text(readings: Reading[]): string {
  const rows = readings.map(({ sandbox, stats, cpuPercent }) => [
    sandbox.info.name ?? sandbox.id,
    cpuPercent === null ? '-' : `${cpuPercent.toFixed(0)} %`,
    `${(stats.cpuUsageMs / 1000).toFixed(1)} s`,
    `${formatBytes(stats.memoryBytes)} / ${formatBytes(stats.memoryLimitBytes)}`,
    `${formatBytes(stats.diskBytes)} / ${formatBytes(stats.diskLimitBytes)}`,
    String(stats.pids),
    `${formatBytes(stats.networkRxBytes)} / ${formatBytes(stats.networkTxBytes)}`,
    String(stats.oomKills),
  ]);
  return table(['SANDBOX', 'CPU', 'CPU TIME', 'MEMORY', 'DISK', 'PIDS', 'NETWORK IN / OUT', 'OOM'], rows);
}
