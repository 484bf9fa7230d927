/**
 * A program that works in a sandbox and asks how the server is, over and over, and is asked how long that
 * took. It is a process of its own, so that what attacks the server does not slow down the clock of who
 * suffers from it.
 */
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface NeighbourOptions {
  url: string;
  key: string;
  sandbox: string;
}

/** In milliseconds, in no order. What has failed or not ended in time counts as the longest there is. */
export interface Latencies {
  exec: number[];
  healthz: number[];
  failed: number;
}

const PAUSE_MS = 10;
const LONGEST_MS = 30_000;
/** A call that has waited this long counts before it has ended. */
const LONG_MS = 200;

const { url, key, sandbox } = JSON.parse(process.argv[2]!) as NeighbourOptions;
/** Since when what is under way is waited for. */
const waiting = new Map<'exec' | 'healthz', number>();
let taken: Latencies = { exec: [], healthz: [], failed: 0 };

process.on('message', () => {
  // A server that answers nobody any more is slow, too.
  for (const [what, since] of waiting)
    if (performance.now() - since > LONG_MS) taken[what].push(performance.now() - since);
  process.send!(taken);
  taken = { exec: [], healthz: [], failed: 0 };
});
process.on('disconnect', () => process.exit(0));
const agents = { GET: new Agent({ keepAlive: true }), POST: new Agent({ keepAlive: true }) };
const exec = JSON.stringify({ argv: ['true'] });
await Promise.all([
  over('exec', () => call('POST', `/v1/sandboxes/${sandbox}/exec`, exec)),
  over('healthz', () => call('GET', '/healthz')),
]);

async function over(what: 'exec' | 'healthz', task: () => Promise<boolean>): Promise<never> {
  for (;;) {
    const start = performance.now();
    waiting.set(what, start);
    const ok = await task();
    waiting.delete(what);
    if (!ok) taken.failed++;
    taken[what].push(ok ? performance.now() - start : LONGEST_MS);
    await sleep(PAUSE_MS);
  }
}

function call(method: 'GET' | 'POST', path: string, body?: string): Promise<boolean> {
  return new Promise((resolve) => {
    const headers = {
      authorization: `Bearer ${key}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    };
    const sent = request(
      url + path,
      { method, agent: agents[method], headers, timeout: LONGEST_MS },
      (answer) => {
        answer.resume();
        answer.on('end', () => resolve(answer.statusCode === 200));
        answer.on('error', () => resolve(false));
      },
    );
    sent.on('error', () => resolve(false)).on('timeout', () => sent.destroy());
    sent.end(body);
  });
}
