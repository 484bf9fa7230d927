/** Connect's own client in its binary form, with the services that the published client describes. */
import type { DescService } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient, type Client } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-web';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../../testing/test-server.ts';
import { publishedServices } from '../testing/published-services.ts';
import { encodeEnvelope } from './envelope.ts';

let server: TestServer;
let headers: Record<string, string>;
// The services are read at run time, so their methods have no types.
// oxlint-disable-next-line typescript/no-explicit-any
let clients: Record<string, any>;
beforeAll(async () => {
  server = await startTestServer();
  const { json } = await server.call('POST', '/v2/sandboxes', { body: { templateID: 'base' } });
  headers = { 'x-access-token': json.envdAccessToken as string, 'e2b-sandbox-id': json.sandboxID as string };
  const transport = createConnectTransport({
    baseUrl: server.server.url,
    useBinaryFormat: true,
    fetch: (input, init) => {
      const own = new Headers(init?.headers);
      for (const [name, value] of Object.entries(headers)) own.set(name, value);
      return fetch(input, { ...init, headers: own });
    },
  });
  clients = Object.fromEntries(
    publishedServices().map((service): [string, Client<DescService>] => [
      service.name,
      createClient(service, transport),
    ]),
  );
});
afterAll(() => server[Symbol.asyncDispose]());

function post(path: string, type: string, body: Uint8Array, more: Record<string, string> = {}) {
  return fetch(server.server.url + path, {
    method: 'POST',
    headers: { ...headers, 'content-type': type, ...more },
    body: body as Uint8Array<ArrayBuffer>,
  });
}

describe('envd in protobuf', () => {
  it('runs a process: input, output, list, end', async () => {
    const events = clients['Process']
      .start({ process: { cmd: 'cat', envs: { A: 'ü' } }, tag: 'binary', stdin: true })
      [Symbol.asyncIterator]();
    const started = (await events.next()).value.event.event;
    expect(started).toMatchObject({ case: 'start', value: { pid: expect.any(Number) as number } });
    const process = { selector: { case: 'tag', value: 'binary' } };
    const listed = await clients['Process'].list({});
    expect(listed.processes).toMatchObject([
      { pid: started.value.pid as number, tag: 'binary', config: { cmd: 'cat' } },
    ]);
    const bytes = Uint8Array.from([0, 255, 128, 10]);
    await clients['Process'].sendInput({ process, input: { input: { case: 'stdin', value: bytes } } });
    expect((await events.next()).value.event.event).toMatchObject({
      case: 'data',
      value: { output: { case: 'stdout', value: bytes } },
    });
    await clients['Process'].closeStdin({ process });
    expect((await events.next()).value.event.event).toMatchObject({
      case: 'end',
      value: { exitCode: 0, exited: true, status: 'exit status 0' },
    });
    expect((await events.next()).done).toBe(true);
  });

  it('tells of a kill with a negative code', async () => {
    const events = clients['Process']
      .start({ process: { cmd: 'cat' }, tag: 'killed' })
      [Symbol.asyncIterator]();
    await events.next();
    await clients['Process'].sendSignal({
      process: { selector: { case: 'tag', value: 'killed' } },
      signal: 9,
    });
    expect((await events.next()).value.event.event.value).toMatchObject({
      exitCode: -1,
      exited: false,
      error: 'signal: killed',
    });
  });

  it('makes, describes, lists, moves and removes', async () => {
    const files = clients['Filesystem'];
    const { entry } = await files.makeDir({ path: '/home/user/made' });
    expect(entry).toMatchObject({
      name: 'made',
      type: 2,
      path: '/home/user/made',
      mode: 0o755,
      owner: 'user',
    });
    expect(typeof entry.size).toBe('bigint');
    expect(Math.abs(Number(entry.modifiedTime.seconds) * 1000 - Date.now())).toBeLessThan(3_600_000);
    const { entries } = await files.listDir({ path: '/home/user', depth: 1 });
    expect(entries).toContainEqual(expect.objectContaining({ name: 'made' }));
    await files.move({ source: '/home/user/made', destination: '/home/user/moved' });
    expect((await files.stat({ path: 'moved' })).entry.path).toBe('/home/user/moved');
    await files.remove({ path: 'moved' });
    await expect(files.stat({ path: 'moved' })).rejects.toMatchObject({ code: Code.NotFound });
  });

  it('watches, as a stream and by asking', async () => {
    const files = clients['Filesystem'];
    const { watcherId } = await files.createWatcher({ path: '/home/user' });
    const ending = new AbortController();
    const events = files
      .watchDir({ path: '/home/user', includeEntry: true }, { signal: ending.signal })
      [Symbol.asyncIterator]();
    expect((await events.next()).value.event.case).toBe('start');
    await files.makeDir({ path: '/home/user/seen' });
    expect((await events.next()).value.event).toMatchObject({
      case: 'filesystem',
      value: { name: 'seen', type: 1, entry: { path: '/home/user/seen' } },
    });
    ending.abort();
    expect((await files.getWatcherEvents({ watcherId })).events).toMatchObject([{ name: 'seen', type: 1 }]);
    await files.removeWatcher({ watcherId });
  });

  it('ends a stream that fails with the same error as in JSON', async () => {
    const failing = clients['Process'].connect({ process: { selector: { case: 'pid', value: 999_999 } } });
    const error: unknown = await failing[Symbol.asyncIterator]()
      .next()
      .catch((reason: unknown) => reason);
    expect(ConnectError.from(error)).toMatchObject({
      code: Code.NotFound,
      rawMessage: 'process with pid 999999 not found',
    });
  });

  it('refuses what is no message, what is compressed, and other types', async () => {
    const hostile = Buffer.from([0x0a, 0xff, 0xff]);
    const unary = await post('/filesystem.Filesystem/Stat', 'application/proto', hostile);
    expect([unary.status, await unary.json()]).toMatchObject([400, { code: 'invalid_argument' }]);
    const stream = await post('/process.Process/Start', 'application/connect+proto', encodeEnvelope(hostile));
    expect([stream.status, (await stream.text()).slice(5)]).toMatchObject([
      200,
      expect.stringContaining('invalid_argument') as string,
    ]);
    const zipped = await post('/filesystem.Filesystem/Stat', 'application/proto', hostile, {
      'content-encoding': 'gzip',
    });
    expect([zipped.status, await zipped.json()]).toMatchObject([501, { code: 'unimplemented' }]);
    const other = await post('/process.Process/Start', 'application/proto', hostile);
    expect([other.status, other.headers.get('accept-post')]).toEqual([
      415,
      'application/connect+json, application/connect+proto',
    ]);
  });
});
