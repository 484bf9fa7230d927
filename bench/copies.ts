/**
 * Large copies as users make them: through the API and by `cay cp`, with the server as a process of its own.
 * What server and sandbox need of the processor is reported beside it: it swings less with the load than the
 * rate.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import { connect } from 'node:net';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { openCay, type Cay } from '../test/support/cay.ts';
import { RUNTIMES, type Bench } from './bench.ts';
import { httpClient, type HttpClient } from './http-client.ts';
import { processTicks, TICKS_PER_SECOND } from './processor.ts';

const SIZE = 1_000_000_000;
const CHUNK = Buffer.alloc(1_000_000, 0x5a);
const SMALL_FILES = 2_000;
const AIMS = { runc: 900, runsc: 500, cp: 400 } as const;

interface Place {
  cay: Cay;
  url: URL;
  key: string;
  pid: number;
  id: string;
  client: HttpClient;
}

export async function benchCopies({ report }: Pick<Bench, 'report'>): Promise<void> {
  console.log(`load of the machine before: ${loadavg()[0]!.toFixed(1)}`);
  for (const runtime of RUNTIMES) {
    await using cay = await openCay({ CAY_RUNTIME: runtime, CAY_POOL: '0', CAY_LOG_LEVEL: 'warn' });
    const place = await openPlace(cay);
    const add = async (what: string, aim: number, act: () => Promise<unknown>, bytes = SIZE) => {
      const before = await busy(place);
      const begun = performance.now();
      await act();
      const seconds = (performance.now() - begun) / 1000;
      const after = await busy(place);
      const better = 'more' as const;
      report.add({
        what: `${what}, ${runtime}`,
        value: bytes / 1e6 / seconds,
        unit: 'MB/s',
        aim: { value: aim, better },
      });
      const each = (name: 'server' | 'sandbox') => ((after[name] - before[name]) * 1e12) / bytes;
      report.add({ what: '  … CPU of the server, each GB', value: each('server'), unit: 'ms' });
      report.add({ what: '  … CPU of the sandbox, each GB', value: each('sandbox'), unit: 'ms' });
    };
    const local = join(cay.dataDir, 'large');
    await writeFile(local, large());
    const cp = async (...args: string[]) => {
      const { code, stderr } = await cay.run('cp', ...args);
      if (code !== 0) throw new Error(`cay cp ended with ${code}: ${stderr}`);
    };
    await add('1 GB in by HTTP', AIMS[runtime], () => put(place, '/home/user/large'));
    await add('1 GB out by HTTP', AIMS[runtime], () => get(place, '/home/user/large'));
    await add('cay cp of 1 GB in', AIMS.cp, () => cp(local, `${place.id}:/home/user/in`));
    await add('cay cp of 1 GB out', AIMS.cp, () => cp(`${place.id}:/home/user/in`, join(cay.dataDir, 'out')));
    const small = `mkdir /home/user/small; cd /home/user/small; head -c ${SMALL_FILES * 10_000} /home/user/in | split -b 10000`;
    await place.client.call('POST', `/v1/sandboxes/${place.id}/exec`, { shell: small });
    const bytes = SMALL_FILES * 10_000;
    const tree = join(cay.dataDir, 'small');
    await add(
      `cay cp of ${SMALL_FILES} small files out`,
      50,
      () => cp(`${place.id}:/home/user/small`, tree),
      bytes,
    );
    await add(
      `cay cp of ${SMALL_FILES} small files in`,
      50,
      () => cp(tree, `${place.id}:/home/user/again`),
      bytes,
    );
    place.client.close();
  }
  console.log(`load of the machine after: ${loadavg()[0]!.toFixed(1)}`);
}

async function openPlace(cay: Cay): Promise<Place> {
  const { id } = await cay.json<{ id: string }>('create', '--disk', '8G', '--memory', '2G');
  const read = async (name: string) =>
    JSON.parse(await readFile(join(cay.dataDir, name), 'utf8')) as { key: string; url: string; pid: number };
  const { url, pid } = await read('server.json');
  const { key } = await read('cli.json');
  return { cay, url: new URL(url), pid, key, id, client: httpClient(url, key) };
}

/** Seconds of the processor that server and sandbox have used so far. */
async function busy({ pid, client, id }: Place): Promise<{ server: number; sandbox: number }> {
  const { cpuUsageMs } = (await client.call('GET', `/v1/sandboxes/${id}/stats`)) as { cpuUsageMs: number };
  return { server: (await processTicks(pid)) / TICKS_PER_SECOND, sandbox: cpuUsageMs / 1e3 };
}

function* large(): Generator<Buffer> {
  for (let left = SIZE; left > 0; left -= CHUNK.length) yield CHUNK;
}

function head(place: Place, method: string, path: string, more: string): string {
  return `${method} /v1/sandboxes/${place.id}/files?path=${path} HTTP/1.1\r\nHost: ${place.url.host}\r\nAuthorization: Bearer ${place.key}\r\nConnection: close\r\n${more}\r\n`;
}

/** A client that costs little, so that the server is what is measured. */
async function put(place: Place, path: string): Promise<void> {
  const socket = connect({ port: Number(place.url.port), host: place.url.hostname });
  const answer: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => answer.push(chunk));
  const ended = once(socket, 'end');
  socket.write(head(place, 'PUT', path, `Content-Length: ${SIZE}\r\n`));
  for (const chunk of large()) if (!socket.write(chunk)) await once(socket, 'drain');
  await ended;
  socket.destroy();
  const text = Buffer.concat(answer).toString();
  if (!text.startsWith('HTTP/1.1 200')) throw new Error(`the upload was answered with ${text}`);
}

async function get(place: Place, path: string): Promise<void> {
  let received = 0;
  const buffer = Buffer.allocUnsafeSlow(1024 * 1024);
  const socket = connect({
    port: Number(place.url.port),
    host: place.url.hostname,
    onread: {
      buffer,
      callback: (bytes) => {
        received += bytes;
        return true;
      },
    },
  });
  const ended = once(socket, 'end');
  socket.write(head(place, 'GET', path, ''));
  await ended;
  socket.destroy();
  if (received < SIZE) throw new Error(`${received} bytes came of ${SIZE}`);
}
