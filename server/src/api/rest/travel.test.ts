import type { Sandbox } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryBackend } from '../../backends/memory/memory.ts';
import { hibernatingBackend } from '../../control/testing/hibernating-backend.ts';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

const post = (id: string, verb: string, body: unknown = {}, headers: Record<string, string> = {}) =>
  test.call('POST', `/v1/sandboxes/${id}/${verb}`, { body, headers });
const write = (id: string, text: string) =>
  test.call('PUT', `/v1/sandboxes/${id}/files?path=/tmp/state`, { body: text });
const read = async (id: string) => (await test.call('GET', `/v1/sandboxes/${id}/files?path=/tmp/state`)).text;
const refusal = async (answer: ReturnType<typeof post>) => {
  const { status, json } = await answer;
  return [status, json?.error?.code];
};

async function twoTurns(): Promise<string> {
  const { id } = await test.create();
  for (const text of ['one', 'two']) {
    await write(id, text);
    await post(id, 'turns');
  }
  return id;
}

describe('a rollback', () => {
  it('goes to a turn, a name or an id, and can itself be undone', async () => {
    const id = await twoTurns();
    await write(id, 'three');
    const { status, json } = await post(id, 'rollback', { to: 1 });
    expect(status).toBe(200);
    expect(json.sandbox).toMatchObject({ id, state: 'active' });
    expect(json.kept).toMatchObject({ cause: 'rollback' });
    expect(await read(id)).toBe('one');
    await post(id, 'rollback', { to: json.kept.id });
    expect(await read(id)).toBe('three');
    await post(id, 'snapshots', { name: 'third' });
    await post(id, 'rollback', { to: '2' });
    await post(id, 'rollback', { to: 'third' });
    expect(await read(id)).toBe('three');
  });

  it('is refused for what does not exist, and leaves all as it was', async () => {
    const id = await twoTurns();
    for (const to of ['nosuch', 3, `snap_${'0'.repeat(20)}`])
      expect(await refusal(post(id, 'rollback', { to }))).toEqual([404, 'not_found']);
    for (const body of [{}, { to: 0 }, { to: '' }, { to: 1, extra: true }])
      expect(await refusal(post(id, 'rollback', body))).toEqual([400, 'invalid_argument']);
    expect((await refusal(post(id, 'rollback', { to: 1, memory: true })))[1]).toMatch(
      /unsupported|failed_precondition/,
    );
    expect(await read(id)).toBe('two');
    expect((await test.call('GET', `/v1/sandboxes/${id}/snapshots`)).json.snapshots).toHaveLength(2);
  });

  it('is a conflict while another one, or a fork, is under way', async () => {
    const id = await twoTurns();
    const [begun, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    armFaultPoints({
      'control.rollback.recorded': () => {
        begun.resolve();
        return release.promise;
      },
    });
    try {
      const first = post(id, 'rollback', { to: 1 });
      await begun.promise;
      expect(await refusal(post(id, 'rollback', { to: 2 }))).toEqual([409, 'conflict']);
      expect(await refusal(post(id, 'fork'))).toEqual([409, 'conflict']);
      release.resolve();
      expect((await first).status).toBe(200);
    } finally {
      release.resolve();
      armFaultPoints();
    }
    expect(await read(id)).toBe('one');
  });
});

describe('a fork', () => {
  it('makes children with ids, names, labels and tokens of their own, and leaves the parent alone', async () => {
    const { id, ports } = await test.create({ ports: [3000], labels: { team: 'a' } });
    await write(id, 'parent');
    const { status, json } = await post(id, 'fork', { count: 3, namePrefix: 'kid', labels: { round: '1' } });
    expect(status).toBe(201);
    const children = json.sandboxes as Sandbox[];
    expect(children.map(({ name }) => name)).toEqual(['kid-1', 'kid-2', 'kid-3']);
    expect(new Set([id, ...children.map((child) => child.id)]).size).toBe(4);
    const tokens = [ports, ...children.map((child) => child.ports)].map(([port]) => port?.token);
    expect(new Set(tokens).size).toBe(tokens.length);
    for (const child of children)
      expect(child).toMatchObject({ state: 'active', labels: { round: '1' }, base: json.snapshot.id });
    await write(children[0]!.id, 'child');
    expect(await Promise.all([id, children[0]!.id, children[1]!.id].map(read))).toEqual([
      'parent',
      'child',
      'parent',
    ]);
  });

  it('answers the same to the same idempotency key, and refuses it for another request', async () => {
    const { id } = await test.create();
    const headers = { 'idempotency-key': 'fork-once' };
    const first = await post(id, 'fork', { count: 2 }, headers);
    const again = await post(id, 'fork', { count: 2 }, headers);
    expect(again.json.sandboxes.map((child: Sandbox) => child.id)).toEqual(
      first.json.sandboxes.map((child: Sandbox) => child.id),
    );
    expect(await refusal(post(id, 'fork', { count: 3 }, headers))).toEqual([409, 'conflict']);
  });

  it('is refused whole: out of bounds, over the quota, with a name that is taken, with memory where there is none', async () => {
    const { id } = await test.create({ name: 'full-2' }, test.bob);
    const fork = (body: unknown) => test.call('POST', `/v1/sandboxes/${id}/fork`, { body, key: test.bob });
    const count = async () =>
      (await test.call('GET', '/v1/sandboxes', { key: test.bob })).json.sandboxes.length;
    for (const body of [{ count: 0 }, { count: 257 }, { count: 1.5 }, { namePrefix: 'Not A Name' }])
      expect(await refusal(fork(body)), JSON.stringify(body)).toEqual([400, 'invalid_argument']);
    expect(await refusal(fork({ count: 3, namePrefix: 'full' }))).toEqual([409, 'already_exists']);
    expect(await refusal(fork({ memory: true }))).toEqual([501, 'unsupported']);
    expect(await refusal(fork({ from: 'nosuch' }))).toEqual([404, 'not_found']);
    const { project } = (await test.call('GET', `/v1/sandboxes/${id}`, { key: test.bob })).json;
    await test.call('PATCH', `/v1/projects/${project}`, {
      key: test.admin,
      body: { quota: { sandboxes: 2 } },
    });
    expect(await refusal(fork({ count: 2 }))).toEqual([429, 'resource_exhausted']);
    expect(await count()).toBe(1);
  });
});

describe('a paused sandbox', () => {
  const state = async (id: string) => {
    const { state: now, pausedAs } = (await test.call('GET', `/v1/sandboxes/${id}`)).json as Sandbox;
    return pausedAs ?? now;
  };

  it('wakes for a command, a file, its preview, and on resume', async () => {
    const { id, ports } = await test.create({ ports: [3000] });
    await test.call('POST', `/v1/sandboxes/${id}/commands`, { body: { argv: ['http-server', '3000'] } });
    const headers = { 'x-cay-preview-token': ports[0]!.token! };
    const wakes = [
      () => post(id, 'exec', { argv: ['true'] }),
      () => test.call('GET', `/v1/sandboxes/${id}/files?path=/etc/passwd`),
      () => test.call('GET', `/preview/${id}/3000/`, { key: null, headers }),
      () => post(id, 'resume'),
    ];
    for (const wake of wakes) {
      expect((await post(id, 'pause', { as: 'frozen' })).json.pausedAs).toBe('frozen');
      expect(await state(id)).toBe('frozen');
      expect((await wake()).status).toBe(200);
      expect(await state(id)).toBe('active');
    }
  });

  it('does not wake for a visitor without the token', async () => {
    const { id } = await test.create({ ports: [3000] });
    await post(id, 'pause', { as: 'frozen' });
    expect((await test.call('GET', `/preview/${id}/3000/`, { key: null })).status).toBe(404);
    expect(await state(id)).toBe('frozen');
  });

  it('is archived and comes back with its files', async () => {
    const { id } = await test.create();
    await write(id, 'kept');
    expect((await post(id, 'pause', { as: 'archived' })).json).toMatchObject({
      state: 'paused',
      pausedAs: 'archived',
    });
    expect(await read(id)).toBe('kept');
    expect(await state(id)).toBe('active');
  });

  it('is refused what its isolation cannot do, and what makes no sense', async () => {
    const { id } = await test.create();
    expect(await refusal(post(id, 'pause', { as: 'hibernated' }))).toEqual([501, 'unsupported']);
    for (const body of [{ as: 'tired' }, { waitMs: -1 }, { how: 'frozen' }])
      expect(await refusal(post(id, 'pause', body))).toEqual([400, 'invalid_argument']);
    await post(id, 'stop');
    expect((await refusal(post(id, 'pause', {})))[1]).toBe('failed_precondition');
    expect((await refusal(post(id, 'resume')))[1]).toBe('failed_precondition');
  });

  it('is what an idle policy and a timeout make of one, unless a lease holds it', async () => {
    const policy = {
      freezeAfterMs: 1000,
      suspendAfterMs: null,
      hibernateAfterMs: null,
      archiveAfterMs: null,
      destroyAfterMs: null,
    };
    const [idle, held, timed] = await Promise.all([
      test.create({ idle: policy }),
      test.create({ idle: policy }),
      test.create({ timeoutMs: 1000 }),
    ]);
    const { json } = await post(held.id, 'lease', { forMs: 600_000 });
    expect(json.leaseUntilMs).toBeGreaterThan(Date.now());
    await expect.poll(() => state(idle.id), { timeout: 20_000 }).toBe('frozen');
    await expect.poll(() => state(timed.id), { timeout: 20_000 }).toBe('frozen');
    expect(timed.onTimeout).toBe('pause');
    expect(await state(held.id)).toBe('active');
    expect((await post(idle.id, 'exec', { argv: ['true'] })).json.exitCode).toBe(0);
    expect(await refusal(post(held.id, 'lease', { forMs: -1 }))).toEqual([400, 'invalid_argument']);
    expect((await post(held.id, 'lease', { forMs: 0 })).json.leaseUntilMs).toBeNull();
  });
});

describe('where memory can be kept', () => {
  it('snapshots, forks and templates have it, and a pause hibernates', async () => {
    const memory = memoryBackend();
    await using with_ = await startTestServer({ backend: hibernatingBackend(memory) });
    const { id } = await with_.create();
    const call = (verb: string, body: unknown = {}) =>
      with_.call('POST', `/v1/sandboxes/${id}/${verb}`, { body });
    expect((await call('snapshots', { memory: true, name: 'live' })).json).toMatchObject({
      memory: true,
      name: 'live',
    });
    expect((await call('fork', { count: 2 })).json).toMatchObject({ snapshot: { memory: true } });
    const saved = await with_.call('PUT', '/v1/templates/live', { body: { snapshot: 'live', sandbox: id } });
    expect(saved.json.memory).toBe(true);
    expect((await call('pause')).json.pausedAs).toBe('hibernated');
    expect((await call('exec', { argv: ['true'] })).json.exitCode).toBe(0);
    expect((await call('rollback', { to: 'live', memory: true })).status).toBe(200);
  });
});
