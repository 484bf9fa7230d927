import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let files: string;

beforeAll(async () => {
  test = await startTestServer();
  files = `/v1/sandboxes/${(await test.create()).id}/files`;
});
afterAll(() => test[Symbol.asyncDispose]());

const put = (path: string, body: string | Uint8Array, more = '') =>
  test.call('PUT', `${files}?path=${path}${more}`, { body });

describe('files', () => {
  it('are written, read and described', async () => {
    expect((await put('/tmp/new/file', 'content', '&mode=640')).json).toMatchObject({
      path: '/tmp/new/file',
      sizeBytes: 7,
      mode: 0o640,
    });
    const { text, headers } = await test.call('GET', `${files}?path=/tmp/new/file`);
    expect(text).toBe('content');
    expect(headers.get('content-length')).toBe('7');
    expect((await test.call('GET', `${files}/stat?path=/tmp/new/file`)).json.type).toBe('file');
    const head = await test.fetch(`${files}?path=/tmp/new/file`, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '7']);
  });

  it('are appended to, and kept when they must be new', async () => {
    await put('/tmp/log', 'a');
    await put('/tmp/log', 'b', '&append=1');
    const refused = await put('/tmp/log', 'c', '&exclusive=true');
    expect([refused.status, refused.json.error.code]).toEqual([409, 'already_exists']);
    expect((await test.call('GET', `${files}?path=/tmp/log`)).text).toBe('ab');
  });

  it('are read in ranges', async () => {
    await put('/tmp/ten', '0123456789');
    const range = async (value: string) => {
      const { status, text, headers } = await test.call('GET', `${files}?path=/tmp/ten`, {
        headers: { range: value },
      });
      return [status, status === 416 ? '' : text, headers.get('content-range')];
    };
    expect(await range('bytes=2-4')).toEqual([206, '234', 'bytes 2-4/10']);
    expect(await range('bytes=7-')).toEqual([206, '789', 'bytes 7-9/10']);
    expect(await range('bytes=-3')).toEqual([206, '789', 'bytes 7-9/10']);
    expect(await range('bytes=8-100')).toEqual([206, '89', 'bytes 8-9/10']);
    expect(await range('bytes=10-')).toEqual([416, '', 'bytes */10']);
    expect(await range('pages=1')).toEqual([200, '0123456789', null]);
  });

  it('are listed, as one answer or as a stream', async () => {
    await put('/tmp/tree/a', '');
    await put('/tmp/tree/b/c', '');
    const { json } = await test.call('GET', `${files}/list?path=/tmp/tree&depth=2`);
    expect(json.truncated).toBe(false);
    expect((json.files as { path: string }[]).map(({ path }) => path)).toEqual([
      '/tmp/tree/a',
      '/tmp/tree/b',
      '/tmp/tree/b/c',
    ]);
    const { text } = await test.call('GET', `${files}/list?path=/tmp/tree`, {
      headers: { accept: 'application/x-ndjson' },
    });
    expect(
      text
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { name: string }).name),
    ).toEqual(['a', 'b']);
  });

  it('are moved, linked, given other rights and attributes, and removed', async () => {
    await put('/tmp/one', '1');
    expect(
      (await test.call('POST', `${files}/move`, { body: { from: '/tmp/one', to: '/tmp/two' } })).status,
    ).toBe(204);
    expect(
      (await test.call('POST', `${files}/symlink`, { body: { path: '/tmp/link', target: 'two' } })).status,
    ).toBe(204);
    expect((await test.call('GET', `${files}/stat?path=/tmp/link`)).json).toMatchObject({
      type: 'symlink',
      target: 'two',
    });
    expect((await test.call('GET', `${files}/stat?path=/tmp/link&follow=1`)).json.type).toBe('file');
    expect(
      (await test.call('POST', `${files}/chmod`, { body: { path: '/tmp/two', mode: 0o600 } })).status,
    ).toBe(204);
    expect(
      (await test.call('POST', `${files}/chown`, { body: { path: '/tmp/two', owner: 'root', user: 'root' } }))
        .status,
    ).toBe(204);
    expect((await test.call('GET', `${files}/stat?path=/tmp/two`)).json).toMatchObject({
      mode: 0o600,
      uid: 0,
    });
    expect((await test.call('POST', `${files}/mkdir`, { body: { path: '/tmp/d/e' } })).json).toEqual({
      created: true,
    });
    const set = await test.call('PUT', `${files}/xattrs?path=/tmp/d`, {
      body: { attributes: { 'user.note': 'aGk=' } },
    });
    expect(set.json).toEqual({ attributes: { 'user.note': 'aGk=' } });
    expect(
      (await test.call('PUT', `${files}/xattrs?path=/tmp/d`, { body: { attributes: { 'user.note': null } } }))
        .json,
    ).toEqual({
      attributes: {},
    });
    expect((await test.call('DELETE', `${files}?path=/tmp/d`)).status).toBe(412);
    expect((await test.call('DELETE', `${files}?path=/tmp/d&recursive=1`)).status).toBe(204);
    expect((await test.call('GET', `${files}/stat?path=/tmp/d`)).json.error).toMatchObject({
      code: 'not_found',
      details: { errno: 'ENOENT' },
    });
  });

  it('travel as tar archives', async () => {
    await put('/tmp/pack/file', 'packed');
    const archive = new Uint8Array(await (await test.fetch(`${files}/tar?path=/tmp/pack`)).arrayBuffer());
    const unpacked = await test.call('PUT', `${files}/tar?path=/tmp/unpacked`, { body: archive });
    expect(unpacked.json).toMatchObject({ bytes: 6 });
    expect((await test.call('GET', `${files}?path=/tmp/unpacked/file`)).text).toBe('packed');
  });

  it('are watched from the moment the answer begins', async () => {
    await test.call('POST', `${files}/mkdir`, { body: { path: '/tmp/watched' } });
    const abort = new AbortController();
    const response = await test.fetch(`${files}/watch?path=/tmp/watched`, { signal: abort.signal });
    await put('/tmp/watched/new', 'x');
    const [first] = await firstChunk(response);
    expect(first).toContain('"path":"/tmp/watched/new"');
    abort.abort();
  });

  it('keep the old content when an upload is cut off', async () => {
    await put('/tmp/kept', 'old');
    const abort = new AbortController();
    const body = new ReadableStream({
      async pull(controller) {
        controller.enqueue(new Uint8Array(65_536));
        await new Promise((resolve) => setTimeout(resolve, 20));
      },
    });
    const upload = test.fetch(`${files}?path=/tmp/kept`, {
      method: 'PUT',
      body,
      duplex: 'half',
      signal: abort.signal,
    } as RequestInit);
    setTimeout(() => abort.abort(), 100);
    await expect(upload).rejects.toThrow();
    expect((await test.call('GET', `${files}?path=/tmp/kept`)).text).toBe('old');
  });

  it('say as whom they are refused', async () => {
    expect((await test.call('PUT', `${files}?path=/etc/mine`, { body: 'x' })).json.error.code).toBe(
      'permission_denied',
    );
    expect((await test.call('PUT', `${files}?path=/etc/mine&user=root`, { body: 'x' })).status).toBe(200);
  });
});

async function firstChunk(response: Response): Promise<[string]> {
  for await (const chunk of response.body!) return [Buffer.from(chunk).toString()];
  return [''];
}
