/**
 * A program that works in a sandbox and asks how the server is, over and over, and is asked how long that
 * took. It is a process of its own, so that what attacks the server does not slow down the clock of who
 * suffers from it. It calls an idle server beside it in the same way, which shows what the machine alone
 * costs.
 */
import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

export interface NeighbourOptions {
  url: string;
  key: string;
  sandbox: string;
  /** A server on this machine that does nothing but answer; without it that is not measured. */
  idleUrl?: string;
}

/** In milliseconds, in no order. What has failed or not ended in time counts as the longest there is. */
export interface Latencies {
  exec: number[];
  healthz: number[];
  /** Of the idle server. */
  idle: number[];
  failed: number;
}

type Measured = 'exec' | 'healthz' | 'idle';

const PAUSE_MS = 10;
const LONGEST_MS = 30_000;
/** A call that has waited this long counts before it has ended. */
const LONG_MS = 200;

const { url, key, sandbox, idleUrl } = JSON.parse(process.argv[2]!) as NeighbourOptions;
/** Since when what is under way is waited for. */
const waiting = new Map<Measured, number>();
const nothing = (): Latencies => ({ exec: [], healthz: [], idle: [], failed: 0 });
let taken: Latencies = nothing();

process.on('message', () => {
  // A server that does not answer any more is slow, too.
  for (const [what, since] of waiting)
    if (performance.now() - since > LONG_MS) taken[what].push(performance.now() - since);
  process.send!(taken);
  taken = nothing();
});
process.on('disconnect', () => process.exit(0));
const agents = Array.from({ length: 3 }, () => new Agent({ keepAlive: true }));
const exec = JSON.stringify({ argv: ['true'] });
await Promise.all([
  over('exec', () => call(agents[0]!, 'POST', `${url}/v1/sandboxes/${sandbox}/exec`, exec)),
  over('healthz', () => call(agents[1]!, 'GET', `${url}/healthz`)),
  ...(idleUrl === undefined ? [] : [over('idle', () => call(agents[2]!, 'GET', idleUrl))]),
]);

async function over(what: Measured, task: () => Promise<boolean>): Promise<never> {
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

function call(agent: Agent, method: 'GET' | 'POST', to: string, body?: string): Promise<boolean> {
  return new Promise((resolve) => {
    const headers = {
      authorization: `Bearer ${key}`,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    };
    const sent = request(to, { method, agent, headers, timeout: LONGEST_MS }, (answer) => {
      answer.resume();
      answer.on('end', () => resolve(answer.statusCode === 200));
      answer.on('error', () => resolve(false));
    });
    sent.on('error', () => resolve(false)).on('timeout', () => sent.destroy());
    sent.end(body);
  });
}
