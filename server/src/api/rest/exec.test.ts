import type { ExecEvent, ExecResult } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let path: string;

beforeAll(async () => {
  test = await startTestServer();
  path = `/v1/sandboxes/${(await test.create({ env: { FROM: 'sandbox' } })).id}`;
});
afterAll(() => test[Symbol.asyncDispose]());

const events = (text: string) =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as ExecEvent);
const ndjson = { accept: 'application/x-ndjson' };

describe('exec', () => {
  it('waits for the result', async () => {
    const { status, json } = await test.call('POST', `${path}/exec`, {
      body: { shell: 'echo out; echo err >&2; exit 3' },
    });
    expect(status).toBe(200);
    expect(json as ExecResult).toMatchObject({
      exitCode: 3,
      end: { kind: 'exited', exitCode: 3 },
      stdout: 'out\n',
      stderr: 'err\n',
      truncated: false,
    });
  });

  it('starts from the sandbox’s environment', async () => {
    const { json } = await test.call('POST', `${path}/exec`, {
      body: { shell: 'echo $FROM $MORE', env: { MORE: 'call' } },
    });
    expect(json.stdout).toBe('sandbox call\n');
  });

  it('feeds the input that comes along', async () => {
    expect(
      (await test.call('POST', `${path}/exec`, { body: { argv: ['cat'], input: 'grüße' } })).json.stdout,
    ).toBe('grüße');
  });

  it('keeps a bounded amount of output and says so', async () => {
    const { json } = await test.call('POST', `${path}/exec`, {
      body: { argv: ['flood', '1000000'], maxOutputBytes: 2048 },
    });
    expect(json.stdout).toHaveLength(2048);
    expect(json.truncated).toBe(true);
  });

  it('explains why a command cannot be run', async () => {
    const { status, json } = await test.call('POST', `${path}/exec`, { body: { argv: ['no-such-program'] } });
    expect(status).toBe(404);
    expect(json.error).toMatchObject({ code: 'not_found', details: { exitCode: 127 } });
  });

  it('ends a command at its timeout', async () => {
    expect(
      (await test.call('POST', `${path}/exec`, { body: { argv: ['sleep', '60'], timeoutMs: 50 } })).json,
    ).toMatchObject({
      end: { kind: 'timed_out' },
      exitCode: 124,
    });
  });

  it('streams text whose characters are cut across chunks and mixed with the other channel', async () => {
    const { text, headers } = await test.call('POST', `${path}/exec`, {
      body: { argv: ['bytes', 'o:e2', 'e:c3', 'o:82', 'e:bc', 'o:ac'] },
      headers: ndjson,
    });
    expect(headers.get('content-type')).toBe('application/x-ndjson');
    const seen = events(text);
    expect(seen[0]?.type).toBe('started');
    const joined = (type: string) =>
      seen.map((event) => (event.type === type && 'data' in event ? event.data : '')).join('');
    expect(joined('stdout')).toBe('€');
    expect(joined('stderr')).toBe('ü');
    expect(seen.at(-1)).toEqual({ type: 'end', end: { kind: 'exited', exitCode: 0 }, exitCode: 0 });
  });

  it('streams bytes as base64, and events as SSE', async () => {
    const { text, headers } = await test.call('POST', `${path}/exec`, {
      body: { argv: ['bytes', 'o:ff00'], encoding: 'base64' },
      headers: { accept: 'text/event-stream' },
    });
    expect(headers.get('content-type')).toBe('text/event-stream');
    expect(text).toContain(
      `data: {"type":"stdout","offset":0,"data":"${Buffer.from([255, 0]).toString('base64')}"}\n\n`,
    );
  });

  it('runs once for one idempotency key', async () => {
    const headers = { 'idempotency-key': 'append-once' };
    const body = { shell: 'echo line >> /tmp/lines; echo done' };
    const first = await test.call('POST', `${path}/exec`, { body, headers });
    const second = await test.call('POST', `${path}/exec`, { body, headers });
    expect(second.json.id).toBe(first.json.id);
    expect(second.json.stdout).toBe('done\n');
    expect((await test.call('GET', `${path}/files?path=/tmp/lines`)).text).toBe('line\n');
  });

  it('notes the line, who ran it where and how it ended, and never environment or input', async () => {
    const body = { argv: ['cat', '--', 'value-of-env'], env: { TOKEN: 'value-of-env' }, input: 'the-input' };
    const { id } = (await test.call('POST', `${path}/exec`, { body })).json;
    const own = async () => {
      const { text, json } = await test.call('GET', '/v1/events');
      for (const secret of ['value-of-env', 'the-input']) expect(text).not.toContain(secret);
      return (json.events as { data: { command?: string } }[]).filter(({ data }) => data.command === id);
    };
    // The end is noted when the answer is on its way.
    await expect.poll(own).toMatchObject([
      {
        type: 'command.started',
        outcome: 'ok',
        data: { program: 'cat', argv: ['cat', '--', '***'], user: 'user', workdir: '/home/user' },
      },
      { type: 'command.ended', data: { kind: 'exited' } },
    ]);
  });

  it('holds a bounded amount for a client that does not read', async () => {
    const before = process.memoryUsage().rss;
    const abort = new AbortController();
    const response = await test.fetch(`${path}/exec`, {
      method: 'POST',
      headers: ndjson,
      body: JSON.stringify({ argv: ['flood', String(512 * 1024 * 1024)], id: 'flood' }),
      signal: abort.signal,
    });
    await new Promise((resolve) => setTimeout(resolve, 500));
    const { json } = await test.call('GET', `${path}/commands/flood`);
    expect(json.end).toBeUndefined();
    expect(json.outputBytes).toBeLessThan(64 * 1024 * 1024);
    expect(process.memoryUsage().rss - before).toBeLessThan(256 * 1024 * 1024);
    expect(response.status).toBe(200);
    abort.abort();
    expect(
      (await test.call('POST', `${path}/commands/flood/signal`, { body: { signal: 'SIGKILL' } })).status,
    ).toBe(204);
  });
});

describe('commands', () => {
  it('are launched, listed, fed, signalled and forgotten', async () => {
    const launched = await test.call('POST', `${path}/commands`, {
      body: { id: 'cat', argv: ['cat'], stdin: true, expose: 8080 },
    });
    expect(launched.status).toBe(201);
    expect(launched.json).toMatchObject({
      existing: false,
      command: { id: 'cat', argv: ['cat'] },
      port: { port: 8080, visibility: 'private', token: expect.any(String) },
    });
    expect((await test.call('POST', `${path}/commands`, { body: { id: 'cat', argv: ['cat'] } })).status).toBe(
      200,
    );
    expect((await test.call('POST', `${path}/commands/cat/stdin`, { body: 'hello ' })).status).toBe(204);
    expect((await test.call('POST', `${path}/commands/cat/stdin?close=1`, { body: 'world' })).status).toBe(
      204,
    );
    const { text } = await test.call('GET', `${path}/commands/cat/output`);
    expect(
      events(text)
        .map((event) => ('data' in event ? event.data : ''))
        .join(''),
    ).toBe('hello world');
    expect(events(text).at(-1)).toMatchObject({ type: 'end', exitCode: 0 });
    const tail = await test.call('GET', `${path}/commands/cat/output?offset=6`);
    expect(
      events(tail.text)
        .map((event) => ('data' in event ? event.data : ''))
        .join(''),
    ).toBe('world');
    expect((await test.call('DELETE', `${path}/commands/cat`)).status).toBe(204);
    expect((await test.call('GET', `${path}/commands/cat`)).status).toBe(404);
  });

  it('give the output so far to those who do not follow', async () => {
    await test.call('POST', `${path}/commands`, { body: { id: 'talker', shell: 'echo first; sleep 100' } });
    await expect
      .poll(async () => (await test.call('GET', `${path}/commands/talker`)).json.outputBytes)
      .toBe(6);
    const { text } = await test.call('GET', `${path}/commands/talker/output?follow=0`);
    expect(events(text).map(({ type }) => type)).toEqual(['started', 'stdout']);
    expect(
      (await test.call('POST', `${path}/commands/talker/signal`, { body: { signal: 'SIGKILL' } })).status,
    ).toBe(204);
    expect((await test.call('GET', `${path}/commands/talker/output`)).text).toContain('"signal":"SIGKILL"');
  });

  it('launched with input get it without a reader', async () => {
    await test.call('POST', `${path}/commands`, {
      body: { id: 'fed', argv: ['cat'], input: 'x'.repeat(200_000) },
    });
    await expect
      .poll(async () => (await test.call('GET', `${path}/commands/fed`)).json)
      .toMatchObject({ outputBytes: 200_000, end: { kind: 'exited' } });
  });
});
