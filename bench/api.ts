/** The server as its clients meet it: over HTTP and through the command line, on runc. */
import { readFile, mkdtemp, rm } from 'node:fs/promises';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { serverLog } from '../server/src/cli/lib/server-log.ts';
import { serve } from '../server/src/serve.ts';
import { openCay, type Cay } from '../test/support/cay.ts';
import { exec, wipe, type Bench } from './bench.ts';
import { httpClient, type HttpClient } from './http-client.ts';
import { measure, series } from './measure.ts';
import { machineTicks, processTicks, TICKS_PER_SECOND } from './processor.ts';
import { rawClient } from './raw-client.ts';

/** A server that has run for a while has its code compiled. */
const WARM_UP = 500;
const KEEP_ALIVE_CLIENTS = 16;
const BUSY_SECONDS = 10;
const CROWD = 200;
const CROWD_SECONDS = Number(process.env['CAY_BENCH_SECONDS'] ?? 60);

export async function benchApi(bench: Bench): Promise<void> {
  console.log(`load of the machine before: ${loadavg()[0]!.toFixed(1)}`);
  await overhead(bench);
  await using cay = await openCay({ CAY_RUNTIME: 'runc', CAY_POOL: '2', CAY_LOG_LEVEL: 'info' });
  await commandLine(bench, cay);
  await throughput(bench, cay);
  await crowd(bench, cay);
}

/** Both ways in turn on one sandbox, in one process: what the machine does meanwhile strikes both alike. */
async function overhead({ report, open }: Bench): Promise<void> {
  const dataDir = await mkdtemp('/tmp/cay-bench-api-');
  const backend = await open({ runtime: 'runc' });
  const server = await serve({ backend, dataDir, port: 0, log: serverLog('info', '/dev/null') });
  const client = httpClient(server.url, server.adminKey!);
  try {
    const { id } = (await client.call('POST', '/v1/sandboxes', { runtime: 'runc' })) as {
      id: `sbx_${string}`;
    };
    const guest = await backend.connect(id);
    const raw = await rawClient(server.url, server.adminKey!, `/v1/sandboxes/${id}/exec`, { argv: ['true'] });
    const engine: number[] = [];
    const api: number[] = [];
    for (let index = -WARM_UP; index < 500; index++) {
      const start = performance.now();
      await exec(guest, 'true');
      const middle = performance.now();
      await raw.call();
      if (index < 0) continue;
      engine.push(middle - start);
      api.push(performance.now() - middle);
    }
    raw.close();
    const [direct, through] = [series(engine), series(api)];
    report.add({ what: 'exec true by the engine, runc', value: direct.p50, p99: direct.p99, unit: 'ms' });
    report.add({
      what: 'exec true by HTTP, runc',
      value: through.p50,
      p99: through.p99,
      unit: 'ms',
      aim: { value: 3, better: 'less' },
    });
    report.add({
      what: '  … the API adds',
      value: through.p50 - direct.p50,
      unit: 'ms',
      aim: { value: 1, better: 'less' },
    });
  } finally {
    client.close();
    await server.close();
    await wipe(await open({ runtime: 'runc' }));
    await rm(dataDir, { recursive: true, force: true });
  }
}

async function commandLine({ report }: Bench, cay: Cay): Promise<void> {
  const run = async (...args: string[]) => {
    const { code, stderr } = await cay.run(...args);
    if (code !== 0) throw new Error(`cay ${args.join(' ')} ended with ${code}: ${stderr}`);
  };
  const start = await measure(20, () => run('--version'));
  report.add({
    what: 'cay --version',
    value: start.p50,
    p99: start.p99,
    unit: 'ms',
    aim: { value: 120, better: 'less' },
  });
  await run('run', '--', 'true');
  const samples: number[] = [];
  for (let index = 0; index < 10; index++) {
    // People do not type that fast: the server has a moment to make the next sandbox.
    await sleep(500);
    const begun = performance.now();
    await run('run', '--', 'true');
    samples.push(performance.now() - begun);
  }
  const { p50, p99 } = series(samples);
  report.add({
    what: 'cay run -- true, the server running',
    value: p50,
    p99,
    unit: 'ms',
    aim: { value: 150, better: 'less' },
  });
}

interface Address {
  url: string;
  key: string;
  pid: number;
}

async function addressOf(cay: Cay): Promise<Address> {
  const read = async (name: string) =>
    JSON.parse(await readFile(join(cay.dataDir, name), 'utf8')) as { key: string; url: string; pid: number };
  return { ...(await read('server.json')), key: (await read('cli.json')).key };
}

/** Clients with a key each: the rate limit is not what is measured. */
async function clients(address: Address, count: number, keys: number): Promise<HttpClient[]> {
  const admin = httpClient(address.url, address.key);
  const secrets: string[] = [];
  for (let index = 0; index < keys; index++) {
    secrets.push(
      ((await admin.call('POST', '/v1/keys', { name: `bench-${index}` })) as { secret: string }).secret,
    );
  }
  admin.close();
  return Array.from({ length: count }, (_, index) => httpClient(address.url, secrets[index % keys]!));
}

async function sandboxes(client: HttpClient, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let index = 0; index < count; index++)
    ids.push(((await client.call('POST', '/v1/sandboxes', {})) as { id: string }).id);
  return ids;
}

async function throughput({ report }: Bench, cay: Cay): Promise<void> {
  const address = await addressOf(cay);
  const all = await clients(address, KEEP_ALIVE_CLIENTS, KEEP_ALIVE_CLIENTS);
  const ids = await sandboxes(all[0]!, 4);
  const before = await cpu(address.pid);
  const begun = performance.now();
  let count = 0;
  await Promise.all(
    all.map(async (client, index) => {
      while (performance.now() - begun < BUSY_SECONDS * 1000) {
        await client.call('POST', `/v1/sandboxes/${ids[index % ids.length]}/exec`, { argv: ['true'] });
        count++;
      }
    }),
  );
  const seconds = (performance.now() - begun) / 1000;
  const after = await cpu(address.pid);
  const share = (ticks: number) => ticks / TICKS_PER_SECOND / seconds;
  report.add({
    what: `exec true, ${KEEP_ALIVE_CLIENTS} clients, 4 sandboxes, runc`,
    value: count / seconds,
    unit: '/s',
    aim: { value: 1800, better: 'more' },
  });
  // What is nearest to a whole core, or the machine itself when it is busy on all of them, is the limit.
  report.add({
    what: '  … CPU of the server',
    value: 100 * share(after.server - before.server),
    unit: '% of a core',
  });
  report.add({
    what: '  … CPU of the clients',
    value: 100 * share(after.self - before.self),
    unit: '% of a core',
  });
  report.add({
    what: '  … CPU of the whole machine',
    value: 100 * share(after.machine - before.machine),
    unit: '% of a core',
  });
  for (const id of ids) await all[0]!.call('DELETE', `/v1/sandboxes/${id}`);
  for (const client of all) client.close();
}

/** All clients at once, for a while, doing what clients do. */
async function crowd({ report }: Bench, cay: Cay): Promise<void> {
  const address = await addressOf(cay);
  const all = await clients(address, CROWD, 20);
  const ids = await sandboxes(all[0]!, 10);
  const times: number[] = [];
  const errors = new Map<string, number>();
  const begun = performance.now();
  await Promise.all(
    all.map(async (client, index) => {
      const path = `/v1/sandboxes/${ids[index % ids.length]}`;
      const file = `${path}/files?path=/tmp/client-${index}`;
      const acts = [
        () => client.call('POST', `${path}/exec`, { argv: ['true'] }),
        () => client.call('PUT', file, `content of ${index}`),
        () => client.call('POST', `${path}/exec`, { shell: 'echo out; echo err >&2' }),
        () => client.call('GET', file),
        () => client.call('GET', path),
      ];
      for (let turn = 0; performance.now() - begun < CROWD_SECONDS * 1000; turn++) {
        const start = performance.now();
        try {
          await acts[turn % acts.length]!();
          times.push(performance.now() - start);
        } catch (error) {
          const message = (error as Error).message.replaceAll(/sbx_\w+|client-\d+/g, '…');
          errors.set(message, (errors.get(message) ?? 0) + 1);
        }
      }
    }),
  );
  const seconds = (performance.now() - begun) / 1000;
  const { p50, p99 } = series(times);
  report.add({
    what: `${CROWD} clients for ${CROWD_SECONDS} s, requests`,
    value: times.length / seconds,
    unit: '/s',
  });
  report.add({ what: '  … each', value: p50, p99, unit: 'ms' });
  const failed = errors.values().reduce((sum, count) => sum + count, 0);
  report.add({ what: '  … errors', value: failed, unit: 'errors', aim: { value: 0, better: 'less' } });
  for (const [message, count] of errors) console.log(`    ${count} × ${message}`);
  for (const id of ids) await all[0]!.call('DELETE', `/v1/sandboxes/${id}`);
  for (const client of all) client.close();
  console.log(`load of the machine after: ${loadavg()[0]!.toFixed(1)}`);
}

/** Ticks that a process, this process and the machine as a whole have been busy for. */
async function cpu(pid: number): Promise<{ server: number; self: number; machine: number }> {
  return { server: await processTicks(pid), self: await processTicks('self'), machine: await machineTicks() };
}
