/**
 * Cay beside OpenSandbox, a self-hosted server of sandboxes in containers, through one and the same plain
 * client of HTTP. It is no part of Cay, so it is started by hand:
 *
 *     pip install opensandbox-server; dockerd …; docker import … cay/host:1
 *     opensandbox-server --config sandbox.toml      [runtime] type = "docker", and an image with its execd
 *     CAY_BENCH_OPENSANDBOX=http://127.0.0.1:8080 npm run bench -- peer
 *
 * CAY_BENCH_IMAGE names the image of its sandboxes; it needs no more than `true`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { liveServer } from '../test/support/live-server.ts';
import { RUNTIMES, type Bench } from './bench.ts';
import { httpClient } from './http-client.ts';
import { measure, series } from './measure.ts';

const IMAGE = process.env['CAY_BENCH_IMAGE'] ?? 'cay/host:1';
/** Where its guest listens. */
const EXECD_PORT = 44_772;
const CREATES = 15;
const COMMANDS = 100;
const BURST = 20;
const READY_MS = 60_000;

interface Box {
  run(): Promise<void>;
  remove(): Promise<void>;
}

export async function benchPeer({ report }: Pick<Bench, 'report'>): Promise<void> {
  const url = process.env['CAY_BENCH_OPENSANDBOX'];
  if (url === undefined) throw new Error('CAY_BENCH_OPENSANDBOX names no server: see bench/peer.ts');
  const theirs = await figures(report, 'OpenSandbox on Docker', () => openSandbox(url));
  for (const runtime of RUNTIMES) {
    await using server = await liveServer({ CAY_RUNTIME: runtime, CAY_LOG_LEVEL: 'warn' });
    const ours = await figures(report, `Cay on ${runtime}`, () => cay(server.url, server.apiKey));
    for (const [what, value] of Object.entries(ours)) {
      const ratio = value / theirs[what as keyof typeof theirs];
      report.add({ what: `${what}, Cay on ${runtime} of OpenSandbox`, value: ratio, unit: 'x' });
    }
  }
}

async function figures(report: Bench['report'], name: string, create: () => Promise<Box>) {
  const box = await create();
  const command = await measure(COMMANDS, () => box.run(), { warmUp: 10 });
  await box.remove();
  const made: Box[] = [];
  const ready = async () => {
    const one = await create();
    made.push(one);
    await one.run();
  };
  const one = [];
  for (let index = 0; index < CREATES; index++) {
    // A pool has a moment to fill, as between people.
    await sleep(300);
    one.push((await measure(1, ready, { warmUp: 0 })).p50);
  }
  const burst = await measure(1, async () => void (await Promise.all(Array.from({ length: BURST }, ready))), {
    warmUp: 0,
  });
  for (const each of made) await each.remove();
  const found = {
    'true in a running sandbox': command.p50,
    'create and first command': series(one).p50,
    [`${BURST} creates at once, all done`]: burst.p50,
  };
  for (const [what, value] of Object.entries(found))
    report.add({ what: `${what}, ${name}`, value, unit: 'ms' });
  return found;
}

async function cay(url: string, key: string): Promise<Box> {
  const client = httpClient(url, key);
  const { id } = (await client.call('POST', '/v1/sandboxes', {})) as { id: string };
  return {
    run: async () => void (await client.call('POST', `/v1/sandboxes/${id}/exec`, { argv: ['true'] })),
    async remove() {
      await client.call('DELETE', `/v1/sandboxes/${id}`);
      client.close();
    },
  };
}

async function openSandbox(url: string): Promise<Box> {
  const client = httpClient(url, 'none');
  const { id } = (await client.call('POST', '/v1/sandboxes', {
    image: { uri: IMAGE },
    entrypoint: ['sleep', '100000'],
    timeout: 600,
    resourceLimits: { cpu: '1', memory: '512Mi' },
  })) as { id: string };
  const found = await client.call('GET', `/v1/sandboxes/${id}/endpoints/${EXECD_PORT}`);
  const inside = `http://${(found as { endpoint: string }).endpoint}/command`;
  const command = () => untilComplete(inside);
  await untilAnswered(command);
  return {
    run: command,
    async remove() {
      await client.call('DELETE', `/v1/sandboxes/${id}`);
      client.close();
    },
  };
}

/** Its answer stays open for a while after the command has ended, which is not measured. */
async function untilComplete(url: string): Promise<void> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ command: 'true' }),
  });
  let text = '';
  for await (const chunk of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.includes('execution_complete')) return;
  }
  throw new Error(`the command ended as ${text.slice(0, 200)}`);
}

/** Its answer to a create comes before its guest listens. */
async function untilAnswered(command: () => Promise<void>): Promise<void> {
  const deadline = performance.now() + READY_MS;
  for (;;) {
    try {
      return await command();
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(5);
    }
  }
}
