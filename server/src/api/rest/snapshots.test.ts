import type { Snapshot } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

const write = (id: string, path: string, text: string) =>
  test.call('PUT', `/v1/sandboxes/${id}/files?path=${encodeURIComponent(path)}`, { body: text });
const read = async (id: string, path: string, key = test.alice) =>
  (await test.call('GET', `/v1/sandboxes/${id}/files?path=${encodeURIComponent(path)}`, { key })).text;
const take = async (id: string, body: unknown = {}): Promise<Snapshot> =>
  (await test.call('POST', `/v1/sandboxes/${id}/snapshots`, { body })).json;
const turn = (id: string, body: unknown = {}) => test.call('POST', `/v1/sandboxes/${id}/turns`, { body });

describe('snapshots', () => {
  it('are taken, named, labelled, listed newest first by page, shown and removed', async () => {
    const { id } = await test.create();
    const first = await take(id, { name: 'first', labels: { kind: 'a' } });
    expect(first).toMatchObject({
      sandbox: id,
      name: 'first',
      labels: { kind: 'a' },
      turn: null,
      cause: 'request',
      memory: false,
      parent: null,
    });
    const second = await take(id, { labels: { kind: 'b' } });
    expect(second.parent).toBe(first.id);

    const ids = async (query: string) =>
      (await test.call('GET', query)).json.snapshots.map((one: Snapshot) => one.id);
    expect(await ids(`/v1/sandboxes/${id}/snapshots`)).toEqual([second.id, first.id]);
    expect(await ids(`/v1/snapshots?sandbox=${id}`)).toEqual([second.id, first.id]);
    expect(await ids(`/v1/snapshots?sandbox=${id}&label=kind=a`)).toEqual([first.id]);
    const page = (await test.call('GET', `/v1/sandboxes/${id}/snapshots?limit=1`)).json;
    expect(page.snapshots).toEqual([second]);
    expect(await ids(`/v1/sandboxes/${id}/snapshots?limit=1&cursor=${page.nextCursor}`)).toEqual([first.id]);
    expect((await test.call('GET', `/v1/snapshots/${first.id}`)).json).toEqual(first);

    expect((await test.call('DELETE', `/v1/snapshots/${first.id}`)).status).toBe(204);
    expect((await test.call('GET', `/v1/snapshots/${first.id}`)).json.error.code).toBe('not_found');
    expect((await test.call('GET', `/v1/snapshots/${second.id}`)).json.parent).toBeNull();
  });

  it('are refused with names that are taken or mean something else, and with memory where there is none', async () => {
    const { id } = await test.create();
    await take(id, { name: 'once' });
    const refusals = [
      [{ name: 'once' }, 409, 'already_exists'],
      [{ name: 'now' }, 400, 'invalid_argument'],
      [{ name: 'snap_like' }, 400, 'invalid_argument'],
      [{ name: '7' }, 400, 'invalid_argument'],
      [{ memory: 'yes' }, 400, 'invalid_argument'],
      [{ unknown: 1 }, 400, 'invalid_argument'],
      [{ memory: true }, 501, 'unsupported'],
    ] as const;
    for (const [body, status, code] of refusals) {
      const answer = await test.call('POST', `/v1/sandboxes/${id}/snapshots`, { body });
      expect([answer.status, answer.json.error.code], JSON.stringify(body)).toEqual([status, code]);
    }
    expect((await test.call('GET', `/v1/sandboxes/${id}/snapshots`)).json.snapshots).toHaveLength(1);
  });

  it('stay while something is made of them', async () => {
    const { id } = await test.create();
    const taken = await take(id);
    const child = await test.create({ snapshot: taken.id as `snap_${string}` });
    const refused = await test.call('DELETE', `/v1/snapshots/${taken.id}`);
    expect([refused.status, refused.json.error.code]).toEqual([412, 'failed_precondition']);
    await test.call('DELETE', `/v1/sandboxes/${child.id}`);
    expect((await test.call('PUT', '/v1/templates/held', { body: { snapshot: taken.id } })).status).toBe(200);
    expect((await test.call('DELETE', `/v1/snapshots/${taken.id}`)).json.error.code).toBe(
      'failed_precondition',
    );
    await test.call('DELETE', '/v1/templates/held');
    expect((await test.call('DELETE', `/v1/snapshots/${taken.id}`)).status).toBe(204);
  });

  it('form a tree in which sandboxes stand', async () => {
    const { id } = await test.create();
    expect((await test.call('GET', `/v1/sandboxes/${id}/tree`)).json).toMatchObject({
      start: [{ id, state: 'active' }],
      nodes: [],
    });
    const first = (await turn(id)).json;
    const second = (await turn(id)).json;
    const { json: tree } = await test.call('GET', `/v1/sandboxes/${id}/tree`);
    expect(tree.start).toEqual([]);
    expect(
      tree.nodes.map((node: { snapshot: Snapshot; sandboxes: unknown[] }) => [
        node.snapshot.id,
        node.snapshot.parent,
        node.sandboxes.length,
      ]),
    ).toEqual([
      [first.id, null, 0],
      [second.id, first.id, 1],
    ]);
  });
});

describe('turns', () => {
  it('have numbers that only grow, whatever is removed', async () => {
    const { id } = await test.create();
    const numbers = [];
    for (let i = 0; i < 3; i++) numbers.push((await turn(id)).json.turn);
    expect(numbers).toEqual([1, 2, 3]);
    await test.call('POST', `/v1/sandboxes/${id}/rollback`, { body: { to: 1 } });
    const { snapshots } = (await test.call('GET', `/v1/sandboxes/${id}/snapshots`)).json;
    const last = snapshots.find((one: Snapshot) => one.turn === 3);
    expect((await test.call('DELETE', `/v1/snapshots/${last.id}`)).status).toBe(204);
    expect((await turn(id)).json.turn).toBe(4);
    expect((await test.call('GET', `/v1/sandboxes/${id}`)).json.turn).toBe(4);
  });

  it('wait for commands that a client waits for, and say if some still ran', async () => {
    const { id } = await test.create();
    const ended = test.call('POST', `/v1/sandboxes/${id}/exec`, {
      body: { shell: 'sleep 0.3; echo done > /tmp/done' },
    });
    while ((await test.call('GET', `/v1/sandboxes/${id}/commands`)).json.commands.length === 0);
    const quiet = await turn(id, { waitMs: 10_000 });
    expect([quiet.status, quiet.json.quiet]).toEqual([201, true]);
    expect((await ended).json.exitCode).toBe(0);
    const { json: child } = await test.call('POST', `/v1/sandboxes/${id}/fork`, { body: { from: 1 } });
    expect(await read(child.sandboxes[0].id, '/tmp/done')).toBe('done\n');

    const gone = new AbortController();
    const long = test.fetch(`/v1/sandboxes/${id}/exec`, {
      method: 'POST',
      body: JSON.stringify({ argv: ['sleep', '60'] }),
      signal: gone.signal,
    });
    while (
      (await test.call('GET', `/v1/sandboxes/${id}/commands`)).json.commands.every(
        ({ end }: { end?: unknown }) => end,
      )
    );
    expect((await turn(id, { waitMs: 10 })).json.quiet).toBe(false);
    gone.abort();
    await expect(long).rejects.toThrow();
  });

  it('are pruned by retention, and never one that has a name', async () => {
    const { id } = await test.create({ retention: { keepLast: 2, maxAgeMs: null } });
    await turn(id, { name: 'named' });
    for (let i = 0; i < 4; i++) await turn(id);
    const kept = async () =>
      (await test.call('GET', `/v1/sandboxes/${id}/snapshots`)).json.snapshots.map(
        (one: Snapshot) => one.turn,
      );
    await expect.poll(kept).toEqual([5, 4, 1]);
  });

  it('are refused with a wait that is out of bounds', async () => {
    const { id } = await test.create();
    for (const waitMs of [-1, 600_001, '5'])
      expect((await turn(id, { waitMs })).json.error.code).toBe('invalid_argument');
  });
});

describe('archives of snapshots', () => {
  it('come back as they were, in another project too', async () => {
    const { id } = await test.create();
    await write(id, '/tmp/kept', 'yes');
    const taken = await take(id);
    const response = await test.fetch(`/v1/snapshots/${taken.id}/archive`);
    expect(response.headers.get('content-type')).toBe('application/vnd.cay.snapshot');
    const archive = new Uint8Array(await response.arrayBuffer());
    const { status, json: loaded } = await test.call('POST', '/v1/snapshots?name=loaded', {
      body: archive,
      key: test.bob,
    });
    expect(status).toBe(201);
    expect(loaded).toMatchObject({ name: 'loaded', cause: 'import', parent: null });
    expect(loaded.id).not.toBe(taken.id);
    const made = await test.create({ snapshot: loaded.id }, test.bob);
    expect(await read(made.id, '/tmp/kept', test.bob)).toBe('yes');
    expect((await test.call('GET', `/v1/snapshots/${loaded.id}`)).status).toBe(404);
  });

  it('are refused whole if they are cut short, altered, or no archive', async () => {
    const { id } = await test.create();
    const archive = new Uint8Array(
      await (await test.fetch(`/v1/snapshots/${(await take(id)).id}/archive`)).arrayBuffer(),
    );
    const altered = archive.slice();
    altered[altered.length >> 1]! ^= 1;
    const before = (await test.call('GET', '/v1/snapshots?limit=1000')).json.snapshots.length;
    for (const body of [
      archive.subarray(0, archive.length - 9),
      altered,
      Buffer.from('nonsense'),
      new Uint8Array(0),
    ]) {
      const { status, json } = await test.call('POST', '/v1/snapshots', { body });
      expect([status, json.error.code]).toEqual([400, 'invalid_argument']);
    }
    expect((await test.call('GET', '/v1/snapshots?limit=1000')).json.snapshots.length).toBe(before);
  });
});

describe('templates of snapshots', () => {
  it('are saved by name or number, listed, replaced and removed, and sandboxes start from them', async () => {
    const { id } = await test.create({ name: 'maker' });
    await write(id, '/tmp/made', 'one');
    await take(id, { name: 'ready' });
    const put = (body: unknown, name = 'mine') => test.call('PUT', `/v1/templates/${name}`, { body });
    expect((await put({ snapshot: 'ready', sandbox: 'maker' })).json).toMatchObject({
      name: 'mine',
      memory: false,
    });
    expect(await read((await test.create({ template: 'mine' })).id, '/tmp/made')).toBe('one');

    await write(id, '/tmp/made', 'two');
    await turn(id);
    expect((await put({ snapshot: 1, sandbox: 'maker' })).json.error.code).toBe('already_exists');
    expect((await put({ snapshot: 1, sandbox: 'maker', replace: true })).status).toBe(200);
    expect(await read((await test.create({ template: 'mine' })).id, '/tmp/made')).toBe('two');

    expect((await put({ snapshot: 'ready' })).json.error.code).toBe('not_found');
    expect((await put({ snapshot: 1, sandbox: 'maker' }, 'base')).json.error.code).toBe('already_exists');
    expect((await put({ snapshot: 1, sandbox: 'maker' }, 'No%20name')).json.error.code).toBe(
      'invalid_argument',
    );
    expect(
      (await test.call('GET', '/v1/templates')).json.templates.map(({ name }: { name: string }) => name),
    ).toEqual(['base', 'mine']);
    expect((await test.call('GET', '/v1/templates', { key: test.bob })).json.templates).toHaveLength(1);
    const stranger = await test.call('POST', '/v1/sandboxes', { body: { template: 'mine' }, key: test.bob });
    expect(stranger.status).toBeGreaterThanOrEqual(400);
    expect((await test.call('DELETE', '/v1/templates/mine', { key: test.bob })).status).toBe(204);
    expect((await test.call('DELETE', '/v1/templates/mine')).status).toBe(204);
    expect(
      (await test.call('POST', '/v1/sandboxes', { body: { template: 'mine' } })).status,
    ).toBeGreaterThanOrEqual(400);
  });
});

describe('another project', () => {
  it('sees nothing of snapshots, by any route', async () => {
    const { id } = await test.create();
    const taken = await take(id, { name: 'secret-name' });
    const own = await test.create({}, test.bob);
    const calls: [string, string, unknown?][] = [
      ['GET', `/v1/snapshots/${taken.id}`],
      ['DELETE', `/v1/snapshots/${taken.id}`],
      ['GET', `/v1/snapshots/${taken.id}/archive`],
      ['GET', `/v1/sandboxes/${own.id}/diff?from=${taken.id}`],
      ['GET', `/v1/sandboxes/${own.id}/export?at=${taken.id}`],
      ['POST', `/v1/sandboxes/${own.id}/rollback`, { to: taken.id }],
      ['POST', `/v1/sandboxes/${own.id}/fork`, { from: taken.id }],
      ['POST', '/v1/sandboxes', { snapshot: taken.id }],
      ['PUT', '/v1/templates/stolen', { snapshot: taken.id }],
      ['PUT', '/v1/templates/stolen', { snapshot: 'secret-name', sandbox: id }],
    ];
    for (const [method, path, body] of calls) {
      const { status, text } = await test.call(method, path, { key: test.bob, body });
      expect(status, `${method} ${path}: ${text}`).toBe(404);
    }
    expect((await test.call('GET', '/v1/snapshots', { key: test.bob })).text).not.toContain('secret-name');
    expect((await test.call('GET', `/v1/snapshots/${taken.id}`)).status).toBe(200);
  });
});
