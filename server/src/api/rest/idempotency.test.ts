import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
beforeAll(async () => {
  test = await startTestServer();
});
afterAll(() => test[Symbol.asyncDispose]());

const keyed = (key: string) => ({ 'idempotency-key': key });

describe('creating a key twice with one idempotency key', () => {
  const create = (key: string, body: object) =>
    test.call('POST', '/v1/keys', { key: test.admin, headers: keyed(key), body });

  it('gives the same key and the same secret, which is stored nowhere', async () => {
    const first = await create('key-1', { name: 'robot' });
    const second = await create('key-1', { name: 'robot' });
    expect([first.status, second.status]).toEqual([201, 200]);
    expect(first.json.secret).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(second.json).toEqual(first.json);
    expect((await test.call('GET', '/v1/version', { key: first.json.secret })).status).toBe(200);
    const { keys } = (await test.call('GET', '/v1/keys', { key: test.admin })).json as {
      keys: { name: string }[];
    };
    expect(keys.filter(({ name }) => name === 'robot')).toHaveLength(1);
    for (const { name: file } of readdirSync(test.dataDir, { withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    )) {
      const content = readFileSync(join(test.dataDir, file));
      for (const text of [first.json.secret, first.json.secret.slice(4)])
        expect(content.includes(text), file).toBe(false);
    }
    const { json } = await test.call('GET', '/v1/events', { key: test.admin });
    const created = (json.events as { type: string; data: { name?: string } }[]).filter(
      ({ type, data }) => type === 'key.created' && data.name === 'robot',
    );
    expect(created).toHaveLength(1);
  });

  it('gives other secrets for other keys', async () => {
    const secrets = [await create('key-2', { name: 'a' }), await create('key-3', { name: 'a' })].map(
      ({ json }) => json.secret,
    );
    expect(new Set(secrets).size).toBe(2);
  });

  it('is a conflict if the request is another, or the call', async () => {
    await create('key-4', { name: 'a' });
    expect(await create('key-4', { name: 'b' })).toMatchObject({
      status: 409,
      json: { error: { code: 'conflict' } },
    });
    const project = await test.call('POST', '/v1/projects', {
      key: test.admin,
      headers: keyed('key-4'),
      body: { name: 'a' },
    });
    expect(project.status).toBe(409);
  });

  it('does not bring a revoked key back', async () => {
    const { json } = await create('key-5', { name: 'a' });
    await test.call('DELETE', `/v1/keys/${json.key.id}`, { key: test.admin });
    expect((await create('key-5', { name: 'a' })).status).toBe(404);
    expect((await test.call('GET', '/v1/version', { key: json.secret })).status).toBe(401);
  });
});

describe('creating a project twice with one idempotency key', () => {
  it('makes one', async () => {
    const create = (body: object) =>
      test.call('POST', '/v1/projects', { key: test.admin, headers: keyed('project-1'), body });
    const first = await create({ name: 'once' });
    expect([first.status, (await create({ name: 'once' })).status]).toEqual([201, 200]);
    expect((await create({ name: 'once' })).json).toEqual(first.json);
    expect((await create({ name: 'twice' })).status).toBe(409);
  });
});

describe('commands with one idempotency key', () => {
  const lines = async (path: string) => (await test.call('GET', `${path}/files?path=/tmp/lines`)).text;

  it.each(['exec', 'commands'])('run once, and %s with another body is a conflict', async (verb) => {
    const path = `/v1/sandboxes/${(await test.create()).id}`;
    const run = (body: object) => test.call('POST', `${path}/${verb}`, { body, headers: keyed('run') });
    const body = { shell: 'echo line >> /tmp/lines', env: { A: '1', B: '2' } };
    expect((await run(body)).status).toBeLessThan(300);
    expect((await run({ ...body, env: { B: '2', A: '1' } })).status).toBe(200);
    for (const other of [
      { shell: 'echo other >> /tmp/lines' },
      { ...body, env: { A: '2' } },
      { ...body, input: 'x' },
    ]) {
      expect(await run(other)).toMatchObject({ status: 409, json: { error: { code: 'conflict' } } });
    }
    await expect.poll(() => lines(path)).toBe('line\n');
  });

  it('are distinguished even if they arrive at once', async () => {
    const path = `/v1/sandboxes/${(await test.create()).id}`;
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        test.call('POST', `${path}/exec`, {
          body: { shell: `echo ${index % 2} >> /tmp/lines` },
          headers: keyed('race'),
        }),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(10);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(10);
    expect(await lines(path)).toMatch(/^[01]\n$/);
  });

  it('belong to one sandbox', async () => {
    const [one, two] = [await test.create(), await test.create()];
    const run = (id: string, shell: string) =>
      test.call('POST', `/v1/sandboxes/${id}/exec`, { body: { shell }, headers: keyed('shared') });
    expect((await run(one.id, 'echo 1')).json.stdout).toBe('1\n');
    expect((await run(two.id, 'echo 2')).json.stdout).toBe('2\n');
  });

  it('do not run again when the sandbox has forgotten them', async () => {
    const path = `/v1/sandboxes/${(await test.create()).id}`;
    const run = () =>
      test.call('POST', `${path}/exec`, {
        body: { shell: 'echo line >> /tmp/lines' },
        headers: keyed('once'),
      });
    const { id } = (await run()).json as { id: string };
    await test.call('DELETE', `${path}/commands/${id}`);
    const again = await run();
    expect(again).toMatchObject({
      status: 404,
      json: { error: { hint: expect.stringContaining('it was run') as string } },
    });
    await test.call('POST', `${path}/stop`, { body: {} });
    await test.call('POST', `${path}/start`);
    expect((await run()).status).toBe(404);
    expect(await lines(path)).toBe('line\n');
  });

  it('that could not be started do not use up the key', async () => {
    const path = `/v1/sandboxes/${(await test.create()).id}/exec`;
    expect(
      (await test.call('POST', path, { body: { argv: ['no-such-program'] }, headers: keyed('typo') })).status,
    ).toBe(404);
    expect((await test.call('POST', path, { body: { argv: ['true'] }, headers: keyed('typo') })).status).toBe(
      200,
    );
  });
});
