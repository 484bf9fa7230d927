import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FileChange } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
let id: string;
let dir: string;
const write = (path: string, body: string | Uint8Array) =>
  test.call('PUT', `/v1/sandboxes/${id}/files?path=${path}`, { body });

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'cay-comparison-'));
  test = await startTestServer();
  id = (await test.create({ name: 'compared' })).id;
  await write('/tmp/work/text', 'one\ntwo\nthree\n');
  await write('/tmp/work/gone', 'bye\n');
  await write('/tmp/work/binary', new Uint8Array([0, 1, 2, 3]));
  await test.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
  await write('/tmp/work/text', 'one\n2\nthree\n');
  await write('/tmp/work/new', 'hello\n');
  await write('/tmp/work/binary', new Uint8Array([0, 9, 2, 3]));
  await test.call('DELETE', `/v1/sandboxes/${id}/files?path=/tmp/work/gone`);
  await test.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
  await write('/tmp/work/later', 'now\n');
});
afterAll(async () => {
  await test[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

const diff = (query: string) => test.call('GET', `/v1/sandboxes/compared/diff?${query}`);
const lines = (text: string) =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as FileChange);
const told = (text: string) => lines(text).map(({ change, path }) => `${change} ${path}`);
const taken = async () => (await test.backend.snapshots()).length;

describe('the comparison of two moments', () => {
  it('is a stream of changes in the order of paths', async () => {
    const answer = await diff('from=1&to=2');
    expect(answer.headers.get('content-type')).toContain('application/x-ndjson');
    expect(told(answer.text)).toEqual([
      'modified /tmp/work/binary',
      'removed /tmp/work/gone',
      'added /tmp/work/new',
      'modified /tmp/work/text',
    ]);
    expect(told((await diff('from=2&to=1')).text)).toEqual([
      'modified /tmp/work/binary',
      'added /tmp/work/gone',
      'removed /tmp/work/new',
      'modified /tmp/work/text',
    ]);
    const events = await test.call('GET', `/v1/sandboxes/${id}/diff?from=1&to=2`, {
      headers: { accept: 'text/event-stream' },
    });
    expect(events.text).toMatch(/^data: \{/);
  });

  it('is with now by default, is limited to the given paths, and leaves nothing behind', async () => {
    const before = await taken();
    expect(told((await diff('from=2')).text)).toEqual(['added /tmp/work/later']);
    expect(told((await diff('from=1&path=/tmp/work/new&path=/tmp/work/later')).text)).toEqual([
      'added /tmp/work/later',
      'added /tmp/work/new',
    ]);
    expect((await diff('from=1&path=/tmp/wor')).text.trim()).toBe('');
    expect((await diff('from=now')).text.trim()).toBe('');
    await expect.poll(taken).toBe(before);
  });

  it('leaves nothing behind if the client does not read the answer', async () => {
    const before = await taken();
    for (const format of ['changes', 'patch']) {
      await test.fetch(`/v1/sandboxes/${id}/diff?from=1&format=${format}`, { method: 'HEAD' });
      const gone = new AbortController();
      const response = await test.fetch(`/v1/sandboxes/${id}/diff?from=1&format=${format}`, {
        signal: gone.signal,
      });
      gone.abort();
      await expect(response.text()).rejects.toThrow();
    }
    const never = new AbortController();
    const asked = test.fetch(`/v1/sandboxes/${id}/export`, { signal: never.signal });
    setTimeout(() => never.abort(), 1);
    await asked.catch(() => {});
    await expect.poll(taken).toBe(before);
  });

  it('counts files and lines', async () => {
    expect((await diff('from=1&to=2&format=stat')).json).toEqual({
      files: [
        { path: '/tmp/work/binary', change: 'modified', insertions: 0, deletions: 0, binary: true },
        { path: '/tmp/work/gone', change: 'removed', insertions: 0, deletions: 1, binary: false },
        { path: '/tmp/work/new', change: 'added', insertions: 1, deletions: 0, binary: false },
        { path: '/tmp/work/text', change: 'modified', insertions: 1, deletions: 1, binary: false },
      ],
      insertions: 2,
      deletions: 2,
    });
  });

  it('is a patch that git applies', async () => {
    const work = join(dir, 'tmp/work');
    mkdirSync(work, { recursive: true });
    writeFileSync(join(work, 'text'), 'one\ntwo\nthree\n');
    writeFileSync(join(work, 'gone'), 'bye\n');
    writeFileSync(join(work, 'binary'), new Uint8Array([0, 1, 2, 3]));
    const answer = await diff('from=1&to=2&format=patch');
    expect(answer.headers.get('content-type')).toBe('text/x-diff');
    execFileSync('git', ['init', '-q'], { cwd: dir });
    execFileSync('git', ['apply'], { cwd: dir, input: answer.text });
    expect(readFileSync(join(work, 'text'), 'utf8')).toBe('one\n2\nthree\n');
    expect(readFileSync(join(work, 'new'), 'utf8')).toBe('hello\n');
    expect([...readFileSync(join(work, 'binary'))]).toEqual([0, 9, 2, 3]);
    expect(() => readFileSync(join(work, 'gone'))).toThrow('ENOENT');
  });

  it('is refused for moments that are not, and for questions that make no sense', async () => {
    for (const query of [
      'from=9',
      'from=1&to=nosuch',
      'from=nosuch&format=patch',
      'from=nosuch&format=stat',
    ]) {
      const { status, json } = await diff(query);
      expect([status, json.error.code], query).toEqual([404, 'not_found']);
    }
    for (const query of ['', 'to=1', 'from=1&format=pdf', 'from=1&path=relative', 'from=1&x=y']) {
      const { status, json } = await diff(query);
      expect([status, json.error.code], query).toEqual([400, 'invalid_argument']);
    }
  });
});

describe('an export of files', () => {
  const untar = (archive: ArrayBuffer, ...args: string[]) =>
    execFileSync('tar', args, { input: Buffer.from(archive) }).toString();
  const exported = (query: string) => test.fetch(`/v1/sandboxes/${id}/export?${query}`);

  it('is a tar archive of what was there then, or is now', async () => {
    const then = await exported('at=1&path=/tmp/work');
    expect(then.headers.get('content-type')).toBe('application/x-tar');
    const archive = await then.arrayBuffer();
    expect(untar(archive, '-xO', 'tmp/work/text')).toBe('one\ntwo\nthree\n');
    expect(untar(archive, '-t')).toContain('tmp/work/gone');
    const now = await (await exported('path=/tmp/work/later&path=/tmp/work/new')).arrayBuffer();
    expect(untar(now, '-t').trim().split('\n').toSorted()).toEqual(['tmp/work/later', 'tmp/work/new']);
  });

  it('is refused for a path that is not there, before anything is sent', async () => {
    for (const [query, status] of [
      ['at=1&path=/tmp/work/later', 404],
      ['at=9', 404],
      ['path=relative', 400],
      ['at=', 400],
    ] as const) {
      expect((await exported(query)).status, query).toBe(status);
    }
  });
});
