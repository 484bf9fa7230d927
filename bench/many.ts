/**
 * A server with ten sandboxes, and the same server with many that do nothing: whether lists and commands take
 * as long, and what all of them cost the machine.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openCay, type Cay } from '../test/support/cay.ts';
import { RUNTIMES, type Bench } from './bench.ts';
import { httpClient, type HttpClient } from './http-client.ts';
import { measure } from './measure.ts';
import { machineTicks, processTicks, TICKS_PER_SECOND } from './processor.ts';

type Runtime = (typeof RUNTIMES)[number];

const FEW = 10;
const MANY = { runc: 1_000, runsc: 200 } as const;
const AT_ONCE = 4;
const IDLE_SECONDS = 10;
/** What lists and commands may take with many, as a share of what they take with ten. */
const AIM = { value: 1.2, better: 'less' } as const;

interface Place {
  client: HttpClient;
  pid: number;
  ids: string[];
}

interface Figures {
  listMs: number;
  execMs: number;
  serverMB: number;
  machineMB: number;
}

export async function benchMany({ report }: Pick<Bench, 'report'>): Promise<void> {
  for (const runtime of RUNTIMES) {
    await using cay = await openCay({
      CAY_RUNTIME: runtime,
      CAY_POOL: '0',
      CAY_LOG_LEVEL: 'warn',
      CAY_DEFAULT_QUOTA: 'sandboxes=2000',
    });
    const place = await openPlace(cay);
    try {
      await compare(report, runtime, place);
    } finally {
      place.client.close();
    }
  }
}

async function compare(report: Bench['report'], runtime: Runtime, place: Place): Promise<void> {
  const count = MANY[runtime];
  await fill(place, FEW);
  const few = await figures(place);
  const begun = performance.now();
  await fill(place, count);
  const seconds = (performance.now() - begun) / 1000;
  const many = await figures(place);
  const name = `${count} idle sandboxes, ${runtime}`;
  report.add({ what: `${name}, created by the API`, value: (count - FEW) / seconds, unit: '/s' });
  report.add({ what: `${name}, first page of the list`, value: many.listMs, unit: 'ms' });
  report.add({ what: `  … of that with ${FEW}`, value: many.listMs / few.listMs, unit: 'x', aim: AIM });
  report.add({ what: `${name}, exec true by HTTP`, value: many.execMs, unit: 'ms' });
  report.add({ what: `  … of that with ${FEW}`, value: many.execMs / few.execMs, unit: 'x', aim: AIM });
  report.add({ what: `${name}, memory of the server`, value: many.serverMB, unit: 'MB' });
  report.add({ what: `  … of that with ${FEW}`, value: many.serverMB / few.serverMB, unit: 'x', aim: AIM });
  report.add({
    what: `${name}, memory of the machine, each`,
    value: (many.machineMB - few.machineMB) / (count - FEW),
    unit: 'MB',
  });
  const idle = await idleShare(place.pid);
  report.add({ what: `${name}, idle: CPU of the server`, value: idle.server, unit: '% of a core' });
  report.add({ what: `${name}, idle: CPU of the machine`, value: idle.machine, unit: '% of a core' });
  report.add({ what: '  … each sandbox', value: idle.machine / count, unit: '% of a core' });
}

async function openPlace(cay: Cay): Promise<Place> {
  await cay.json('create', '--name', 'first');
  const read = async (name: string) =>
    JSON.parse(await readFile(join(cay.dataDir, name), 'utf8')) as { key: string; url: string; pid: number };
  const { url, pid } = await read('server.json');
  return { client: httpClient(url, (await read('cli.json')).key), pid, ids: [] };
}

async function fill({ client, ids }: Place, count: number): Promise<void> {
  let asked = ids.length;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (asked++ < count) {
        const body = { limits: { memoryBytes: 64 * 1024 * 1024 } };
        ids.push(((await client.call('POST', '/v1/sandboxes', body)) as { id: string }).id);
      }
    }),
  );
}

/** The commands run in the sandboxes that were there first: many others are what is looked at. */
async function figures({ client, pid, ids }: Place): Promise<Figures> {
  const list = await measure(40, async () => void (await client.call('GET', '/v1/sandboxes?limit=10')));
  const exec = await measure(
    100,
    async (index) => {
      const id = ids[Math.abs(index) % FEW]!;
      await client.call('POST', `/v1/sandboxes/${id}/exec`, { argv: ['true'] });
    },
    { warmUp: 20 },
  );
  return {
    listMs: list.p50,
    execMs: exec.p50,
    serverMB: (await kilobytes(`/proc/${pid}/status`, 'VmRSS')) / 1e3,
    machineMB:
      ((await kilobytes('/proc/meminfo', 'MemTotal')) - (await kilobytes('/proc/meminfo', 'MemAvailable'))) /
      1e3,
  };
}

async function kilobytes(file: string, field: string): Promise<number> {
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(await readFile(file, 'utf8'))![1]);
}

/** After a while in which nobody asks for anything. */
async function idleShare(pid: number): Promise<{ server: number; machine: number }> {
  await sleep(3_000);
  const before = { server: await processTicks(pid), machine: await machineTicks() };
  await sleep(IDLE_SECONDS * 1_000);
  const after = { server: await processTicks(pid), machine: await machineTicks() };
  const share = (ticks: number) => (100 * ticks) / TICKS_PER_SECOND / IDLE_SECONDS;
  return { server: share(after.server - before.server), machine: share(after.machine - before.machine) };
}
