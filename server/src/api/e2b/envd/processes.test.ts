/** Parts of the protocol that no published client uses: tags, streamed input, keepalives. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../testing/test-server.ts';
import { decodeEnvelopes, encodeEnvelope } from './envelope.ts';

let server: TestServer;
let headers: Record<string, string>;
beforeAll(async () => {
  server = await startTestServer();
  const { json } = await server.call('POST', '/v2/sandboxes', { body: { templateID: 'base' } });
  headers = { 'x-access-token': json.envdAccessToken as string, 'e2b-sandbox-id': json.sandboxID as string };
});
afterAll(() => server[Symbol.asyncDispose]());

async function unary(
  method: string,
  message: unknown,
): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await fetch(`${server.server.url}/process.Process/${method}`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(message),
  });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

async function stream(
  method: string,
  messages: unknown[],
  more: Record<string, string> = {},
): Promise<AsyncGenerator<unknown>> {
  const response = await fetch(`${server.server.url}/process.Process/${method}`, {
    method: 'POST',
    headers: { ...headers, ...more, 'content-type': 'application/connect+json' },
    body: Buffer.concat(messages.map(envelope)),
  });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/connect+json']);
  return parsed(decodeEnvelopes(response.body as unknown as AsyncIterable<Uint8Array>, 1_000_000));
}

const envelope = (message: unknown) => encodeEnvelope(Buffer.from(JSON.stringify(message)));

async function* parsed(messages: AsyncIterable<Buffer>): AsyncGenerator<unknown> {
  for await (const message of messages) yield JSON.parse(message.toString());
}

const input = (text: string) => ({ stdin: Buffer.from(text).toString('base64') });

describe('the process service', () => {
  it('finds a process by its tag', async () => {
    const events = await stream('Start', [{ process: { cmd: 'cat' }, tag: 'my tag: ü' }]);
    expect((await events.next()).value).toEqual({ event: { start: { pid: expect.any(Number) as number } } });
    const process = { tag: 'my tag: ü' };
    expect((await unary('List', {})).json['processes']).toEqual([expect.objectContaining(process)]);
    const again = await stream('Connect', [{ process }]);
    await again.next();
    expect(await unary('SendInput', { process, input: input('by tag\n') })).toEqual({
      status: 200,
      json: {},
    });
    const told = { event: { data: { stdout: input('by tag\n').stdin } } };
    expect((await events.next()).value).toEqual(told);
    expect((await again.next()).value).toEqual(told);
    await unary('CloseStdin', { process });
    expect((await events.next()).value).toEqual({
      event: { end: { exitCode: 0, exited: true, status: 'exit status 0' } },
    });
    expect((await events.next()).done).toBe(true);
    expect(await unary('SendSignal', { process, signal: 'SIGNAL_SIGTERM' })).toMatchObject({
      status: 404,
      json: { code: 'not_found' },
    });
  });

  it('takes input as a stream', async () => {
    const events = await stream('Start', [{ process: { cmd: 'cat' }, tag: 'streamed' }]);
    await events.next();
    const process = { tag: 'streamed' };
    const answer = await stream('StreamInput', [
      { start: { process } },
      { data: { input: input('one ') } },
      { keepalive: {} },
      { data: { input: input('two\n') } },
    ]);
    expect(await Array.fromAsync(answer)).toEqual([{}]);
    await unary('CloseStdin', { process });
    const rest = (await Array.fromAsync(events)) as { event: { data?: { stdout: string } } }[];
    const text = rest.map(({ event }) => Buffer.from(event.data?.stdout ?? '', 'base64').toString()).join('');
    expect(text).toBe('one two\n');
  });

  it('says that it lives when nothing else is to be said', async () => {
    const events = await stream('Start', [{ process: { cmd: 'cat' }, tag: 'silent' }], {
      'keepalive-ping-interval': '1',
    });
    await events.next();
    expect((await events.next()).value).toEqual({ event: { keepalive: {} } });
    await unary('SendSignal', { process: { tag: 'silent' }, signal: 9 });
    expect((await events.next()).value).toMatchObject({
      event: { end: { exitCode: -1, exited: false, status: 'signal: killed' } },
    });
  });

  it('ends a process that runs longer than its timeout, with that error', async () => {
    const response = await fetch(`${server.server.url}/process.Process/Start`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/connect+json', 'connect-timeout-ms': '100' },
      body: envelope({ process: { cmd: 'cat' }, tag: 'late' }),
    });
    const text = await response.text();
    expect(text).toContain('"code":"deadline_exceeded"');
    expect((await unary('List', {})).json['processes']).toEqual([]);
  });

  it('answers a stream that fails with an end that says why', async () => {
    const response = await fetch(`${server.server.url}/process.Process/Connect`, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/connect+json' },
      body: envelope({ process: { pid: 999_999 } }),
    });
    const bytes = await response.bytes();
    expect([response.status, bytes[0]]).toEqual([200, 2]);
    expect(JSON.parse(Buffer.from(bytes.subarray(5)).toString())).toEqual({
      error: { code: 'not_found', message: 'process with pid 999999 not found' },
    });
  });
});
