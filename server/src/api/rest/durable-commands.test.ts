import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CayEvent, CommandInfo, ExecEvent } from '@cay/sdk/protocol';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryBackend } from '../../backends/memory/memory.ts';
import { serve, type RunningServer } from '../../serve.ts';

const LINES = 400;

/** Writes numbered lines to both channels, and waits now and then. */
const backend = memoryBackend({
  commands: {
    ticker: async ({ argv, stdout, stderr }) => {
      for (let i = 0; i < LINES; i++) {
        await (i % 3 === 0 ? stderr : stdout).write(Buffer.from(`line ${i}\n`));
        if (i % 10 === 0) await sleep(Number(argv[1]));
      }
      return 7;
    },
    flood: async ({ argv, stdout }) => {
      const chunk = Buffer.alloc(65_536);
      for (let at = 0; at < Number(argv[1]); at += chunk.length) {
        chunk.writeUInt32BE(at, 0);
        await stdout.write(chunk);
      }
      return 0;
    },
  },
});

let dataDir: string;
let server: RunningServer;
let key: string;

/** The backend and its sandboxes go on, as they do when a server dies. */
async function open(): Promise<void> {
  const kept = new Proxy(backend, {
    get: (target, name) => (name === 'close' ? async () => {} : Reflect.get(target, name)),
  });
  server = await serve({ backend: kept, dataDir, port: 0, log: pino({ level: 'silent' }) });
  key = server.adminKey ?? key;
}

async function restart(): Promise<void> {
  await server.close();
  await open();
}

beforeAll(async () => {
  dataDir = mkdtempSync(join(tmpdir(), 'cay-durable-'));
  await open();
});
afterAll(async () => {
  await server.close();
  await backend.close();
  rmSync(dataDir, { recursive: true, force: true });
});

async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<T> {
  const response = await fetch(server.url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, ...headers },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`);
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

async function output(path: string, query = ''): Promise<ExecEvent[]> {
  const response = await fetch(`${server.url}${path}/output?encoding=base64${query}`, {
    headers: { authorization: `Bearer ${key}` },
  });
  expect(response.status).toBe(200);
  return (await response.text())
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ExecEvent);
}

const bytesOf = (events: ExecEvent[], type: string) =>
  Buffer.concat(
    events.flatMap((event) =>
      event.type === type && 'data' in event ? [Buffer.from(event.data, 'base64')] : [],
    ),
  ).toString();

/** Every byte once, in order, without a gap. */
function requireWhole(events: ExecEvent[]): void {
  let at = 0;
  for (const event of events) {
    if (event.type !== 'stdout' && event.type !== 'stderr') continue;
    expect(event.offset).toBe(at);
    at += Buffer.from(event.data, 'base64').length;
  }
  const lines = Array.from({ length: LINES }, (_, i) => `line ${i}\n`);
  expect(bytesOf(events, 'stderr')).toBe(lines.filter((_, i) => i % 3 === 0).join(''));
  expect(bytesOf(events, 'stdout')).toBe(lines.filter((_, i) => i % 3 !== 0).join(''));
  expect(events.at(-1)).toEqual({ type: 'end', end: { kind: 'exited', exitCode: 7 }, exitCode: 7 });
}

const create = async () => `/v1/sandboxes/${(await call<{ id: string }>('POST', '/v1/sandboxes', {})).id}`;

describe('a command that is left running', () => {
  it('is recorded to its end over restarts of the server, without a lost or repeated byte', async () => {
    const sandbox = await create();
    await call('POST', `${sandbox}/commands`, { id: 'tick', argv: ['ticker', '15'] });
    for (let round = 0; round < 3; round++) {
      await sleep(60);
      await restart();
    }
    requireWhole(await output(`${sandbox}/commands/tick`));
    await call('POST', `${sandbox}/stop`, {});
    requireWhole(await output(`${sandbox}/commands/tick`));
    await restart();
    requireWhole(await output(`${sandbox}/commands/tick`, '&follow=0'));
    const { end, outputBytes } = await call<CommandInfo>('GET', `${sandbox}/commands/tick`);
    expect(end).toEqual({ kind: 'exited', exitCode: 7 });
    expect((await call<{ commands: CommandInfo[] }>('GET', `${sandbox}/commands`)).commands).toMatchObject([
      { id: 'tick', end, outputBytes },
    ]);
    const tail = await output(`${sandbox}/commands/tick`, `&offset=${outputBytes - 5}`);
    expect(bytesOf(tail, 'stdout') + bytesOf(tail, 'stderr')).toBe(' 399\n');
    const { events } = await call<{ events: CayEvent[] }>(
      'GET',
      `/v1/events?sandbox=${sandbox.split('/').at(-1)}`,
    );
    expect(events.filter(({ type }) => type === 'command.ended')).toMatchObject([
      { data: { command: 'tick', kind: 'exited', exitCode: 7 } },
    ]);
  });

  it('is lost with its sandbox, and what it wrote is not', async () => {
    const sandbox = await create();
    await call('POST', `${sandbox}/commands`, { id: 'cut', shell: 'echo begun; sleep 1000' });
    while (bytesOf(await output(`${sandbox}/commands/cut`, '&follow=0'), 'stdout') !== 'begun\n')
      await sleep(5);
    const reading = output(`${sandbox}/commands/cut`);
    await call('POST', `${sandbox}/stop`, {});
    for (const events of [await reading, await output(`${sandbox}/commands/cut`)]) {
      expect(bytesOf(events, 'stdout')).toBe('begun\n');
      expect(events.at(-1)).toMatchObject({ type: 'end', end: { kind: 'lost' } });
    }
  });

  it('keeps the newest of more than fits, and says what is missing', async () => {
    const sandbox = await create();
    const bytes = 40 * 1024 * 1024;
    await call('POST', `${sandbox}/commands`, {
      id: 'flood',
      argv: ['flood', String(bytes)],
      overflow: 'wait',
    });
    await output(`${sandbox}/commands/flood`, `&offset=${bytes}`);
    const events = await output(`${sandbox}/commands/flood`);
    const gap = events.find((event) => event.type === 'gap');
    expect(gap).toMatchObject({ offset: 0 });
    let at = (gap as { bytes: number }).bytes;
    expect(bytes - at).toBeGreaterThan(8 * 1024 * 1024);
    expect(bytes - at).toBeLessThan(20 * 1024 * 1024);
    for (const event of events) {
      if (event.type !== 'stdout') continue;
      const data = Buffer.from(event.data, 'base64');
      expect(event.offset).toBe(at);
      const mark = Math.ceil(at / 65_536) * 65_536;
      if (mark + 4 <= at + data.length) expect(data.readUInt32BE(mark - at)).toBe(mark);
      at += data.length;
    }
    expect(at).toBe(bytes);
  });

  it('is forgotten when asked to be, and with its sandbox', async () => {
    const sandbox = await create();
    const logs = join(dataDir, 'logs', sandbox.split('/').at(-1)!);
    await call('POST', `${sandbox}/commands`, { id: 'one', shell: 'echo 1' });
    await call('POST', `${sandbox}/commands`, { id: 'two', shell: 'echo 2' });
    await output(`${sandbox}/commands/one`);
    await call('DELETE', `${sandbox}/commands/one`);
    expect(
      (await call<{ commands: CommandInfo[] }>('GET', `${sandbox}/commands`)).commands.map(({ id }) => id),
    ).toEqual(['two']);
    expect(existsSync(logs)).toBe(true);
    await call('DELETE', sandbox);
    for (let tries = 0; existsSync(logs) && tries < 200; tries++) await sleep(10);
    expect(existsSync(logs)).toBe(false);
  });
});

describe('the output of a recorded command', () => {
  const text = (events: ExecEvent[]) => bytesOf(events, 'stdout') + bytesOf(events, 'stderr');

  it('is read from a time on, from near its end, and no further than asked for', async () => {
    const sandbox = await create();
    const log = `${sandbox}/commands/log`;
    await call('POST', `${sandbox}/commands`, {
      id: 'log',
      shell: 'echo early >&2; cat; echo late',
      stdin: true,
    });
    while (text(await output(log, '&follow=0')) !== 'early\n') await sleep(5);
    await sleep(5);
    const between = new Date();
    await sleep(5);
    expect(text(await output(log, `&follow=0&since=${between.toISOString()}`))).toBe('');
    // The times are kept with the output.
    await restart();
    const following = output(log, `&since=${between.toISOString()}`);
    await fetch(`${server.url}${log}/stdin?close=1`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: 'typed\n',
    });
    for (const events of [await following, await output(log, `&since=${between.toISOString()}`)]) {
      expect(text(events)).toBe('typed\nlate\n');
      expect(events.at(-1)).toMatchObject({ type: 'end', end: { kind: 'exited', exitCode: 0 } });
    }
    expect(bytesOf(await output(log, '&since=2020-01-01T00:00:00Z'), 'stderr')).toBe('early\n');
    expect(text(await output(log, `&since=${new Date(Date.now() + 60_000).toISOString()}`))).toBe('');

    expect(text(await output(log, '&tailBytes=5'))).toBe('late\n');
    expect(text(await output(log, '&tailBytes=0&follow=0'))).toBe('');
    expect(text(await output(log, '&tailBytes=1000000'))).toBe('typed\nlate\nearly\n');
    const bounded = await output(log, '&offset=6&limitBytes=5');
    expect(text(bounded)).toBe('typed');
    expect(bounded.at(-1)?.type).toBe('stdout');
    expect(text(await output(log, `&tailBytes=7&since=${between.toISOString()}&limitBytes=3`))).toBe('d\nl');
    await call('POST', `${sandbox}/stop`, {});
    expect(text(await output(log, `&since=${between.toISOString()}&limitBytes=6`))).toBe('typed\n');
    await expect(call('GET', `${log}/output?since=soon`)).rejects.toThrow('400');
  });

  it('has no time if the command is not recorded, other than its beginning', async () => {
    const sandbox = await create();
    await call('POST', `${sandbox}/exec`, { id: 'plain', shell: 'echo here' });
    const { startedAtMs } = await call<CommandInfo>('GET', `${sandbox}/commands/plain`);
    const plain = `${sandbox}/commands/plain`;
    expect(bytesOf(await output(plain, `&since=${new Date(startedAtMs).toISOString()}`), 'stdout')).toBe(
      'here\n',
    );
    await expect(
      call('GET', `${plain}/output?since=${new Date(startedAtMs + 1).toISOString()}`),
    ).rejects.toThrow('failed_precondition');
    expect(bytesOf(await output(plain, '&tailBytes=3'), 'stdout')).toBe('re\n');
  });

  it('of the command that a sandbox was created with outlives the sandbox and servers, without a lost or repeated byte', async () => {
    const { id } = await call<{ id: string }>('POST', '/v1/sandboxes', { cmd: ['ticker', '10'] });
    const sandbox = `/v1/sandboxes/${id}`;
    for (let round = 0; round < 2; round++) {
      await sleep(60);
      await restart();
    }
    requireWhole(await output(`${sandbox}/commands/main`));
    await call('POST', `${sandbox}/stop`, {});
    requireWhole(await output(`${sandbox}/commands/main`));
    const { events } = await call<{ events: CayEvent[] }>('GET', `/v1/events?sandbox=${id}`);
    expect(events.filter(({ type }) => type === 'command.ended')).toMatchObject([
      { data: { command: 'main', exitCode: 7 } },
    ]);
    // The next one takes its place.
    await call('POST', `${sandbox}/start`, {});
    requireWhole(await output(`${sandbox}/commands/main`));
    const { commands } = await call<{ commands: CommandInfo[] }>('GET', `${sandbox}/commands`);
    expect(commands.map((command) => command.id)).toEqual(['main']);
  });
});

describe('a command with an idempotency key', () => {
  it('answers the same again when its sandbox does not run any more', async () => {
    const sandbox = await create();
    const run = () =>
      call<{ id: string; stdout: string; exitCode: number }>(
        'POST',
        `${sandbox}/exec`,
        { shell: 'echo once; exit 3' },
        { 'idempotency-key': 'k' },
      );
    const { id } = await run();
    await call('POST', `${sandbox}/stop`, {});
    await restart();
    expect(await run()).toMatchObject({ id, stdout: 'once\n', exitCode: 3 });
  });

  it('gives a slow reader all of its output', async () => {
    const sandbox = await create();
    const bytes = 24 * 1024 * 1024;
    const response = await fetch(`${server.url}${sandbox}/exec`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, accept: 'application/x-ndjson', 'idempotency-key': 'slow' },
      body: JSON.stringify({ argv: ['flood', String(bytes)], encoding: 'base64' }),
    });
    let text = '';
    let count = 0;
    for await (const chunk of response.body!) {
      if (count++ % 20 === 0) await sleep(2);
      text += Buffer.from(chunk).toString();
    }
    const events = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as ExecEvent);
    expect(events.some(({ type }) => type === 'gap')).toBe(false);
    expect(
      events.reduce(
        (sum, event) => sum + (event.type === 'stdout' ? Buffer.from(event.data, 'base64').length : 0),
        0,
      ),
    ).toBe(bytes);
  });
});

describe('input of a recorded command', () => {
  it('reaches one that reads it, and does not hold up one that does not', async () => {
    const sandbox = await create();
    const run = (body: unknown, key: string) =>
      call<{ stdout: string; exitCode: number }>('POST', `${sandbox}/exec`, body, { 'idempotency-key': key });
    expect(await run({ argv: ['cat'], input: 'x'.repeat(200_000) }, 'a')).toMatchObject({
      stdout: 'x'.repeat(200_000),
    });
    expect(await run({ argv: ['true'], input: 'y'.repeat(5_000_000) }, 'b')).toMatchObject({ exitCode: 0 });
    await call('POST', `${sandbox}/commands`, { id: 'cat', argv: ['cat'], input: 'launched' });
    const events = await output(`${sandbox}/commands/cat`);
    expect(bytesOf(events, 'stdout')).toBe('launched');
  });
});
