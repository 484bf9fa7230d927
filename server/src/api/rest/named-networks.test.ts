/** Named networks through the API, with the memory backend and the real egress. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Program } from '../../backends/memory/program.ts';
import { testStartedEgress, type TestStartedEgress } from '../../egress/testing/test-started-egress.ts';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

/** Says hello to everybody who connects. */
const greet: Program = ({ argv, listen, signal }) => {
  listen(Number(argv[1]), async (incoming) => {
    for await (const chunk of incoming.readable)
      await incoming.write(Buffer.concat([Buffer.from('hello '), chunk]));
    await incoming.end();
  });
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(0), { once: true }));
};
const dial: Program = async ({ argv, stdout, connect }) => {
  const connection = await connect(argv[1]!, Number(argv[2]));
  connection.end(argv[3] ?? 'you');
  for await (const chunk of connection) await stdout.write(chunk as Uint8Array);
  return 0;
};
const hold: Program = async ({ argv, stdout, connect }) => {
  const connection = await connect(argv[1]!, Number(argv[2]));
  connection.write('you');
  for await (const chunk of connection) await stdout.write(chunk as Uint8Array);
  return 0;
};

let egress: TestStartedEgress;
let test: TestServer;
beforeAll(async () => {
  egress = await testStartedEgress();
  test = await startTestServer({ egress, commands: { dial, hold, greet } });
});
afterAll(async () => {
  await test[Symbol.asyncDispose]();
  egress[Symbol.dispose]();
});

const exec = async (id: string, argv: string[], key = test.alice) =>
  (await test.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv }, key })).json;
async function box(name: string | undefined, networks: string[], key = test.alice, input = {}) {
  const made = await test.create({ name, networks, network: 'none', ...input }, key);
  await test.call('POST', `/v1/sandboxes/${made.id}/commands`, { body: { argv: ['greet', '8000'] }, key });
  return made;
}
const attempts = async (id: string) => (await test.call('GET', `/v1/sandboxes/${id}/network/attempts`)).json;

describe('a named network', () => {
  it('lets its sandboxes reach each other by name, and is recorded', async () => {
    const one = await box('one', ['team']);
    const two = await box('two', ['team', 'other']);
    expect(two.networks).toEqual(['team', 'other']);
    expect(await exec(one.id, ['dial', 'two', '8000'])).toMatchObject({ exitCode: 0, stdout: 'hello you' });
    expect(await exec(two.id, ['dial', 'ONE', '8000'])).toMatchObject({ exitCode: 0 });
    const { attempts: seen } = await attempts(one.id);
    expect(seen[0]).toMatchObject({
      name: 'two',
      port: 8000,
      verdict: 'allowed',
      rule: 'network: team',
      bytesOut: 3,
      bytesIn: 9,
    });
    // Nothing listens there, and there is no such name.
    expect((await exec(one.id, ['dial', 'two', '9'])).exitCode).not.toBe(0);
    expect((await exec(one.id, ['dial', 'nobody', '8000'])).exitCode).not.toBe(0);
    for (const { id } of [one, two]) await test.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('is none by default, and never one of another project', async () => {
    const alone = await box('alone', []);
    const inside = await box('inside', ['team']);
    const bobs = await box('bobs', ['team'], test.bob);
    expect((await exec(alone.id, ['dial', 'inside', '8000'])).exitCode).not.toBe(0);
    expect((await exec(inside.id, ['dial', 'alone', '8000'])).exitCode).not.toBe(0);
    expect((await exec(bobs.id, ['dial', 'inside', '8000'], test.bob)).exitCode).not.toBe(0);
    expect((await exec(inside.id, ['dial', 'bobs', '8000'])).exitCode).not.toBe(0);
    for (const name of [inside.id, `${inside.id}.`, inside.id.replace('_', '-')])
      expect((await exec(bobs.id, ['dial', name, '8000'], test.bob)).exitCode).not.toBe(0);
    for (const { id } of [alone, inside]) await test.call('DELETE', `/v1/sandboxes/${id}`);
    await test.call('DELETE', `/v1/sandboxes/${bobs.id}`, { key: test.bob });
  });

  it('cuts connections when one of the two leaves, or is removed', async () => {
    const one = await box('one', ['team']);
    for (const leave of [
      (id: string) => test.call('PATCH', `/v1/sandboxes/${id}`, { body: { networks: ['other'] } }),
      (id: string) => test.call('DELETE', `/v1/sandboxes/${id}`),
    ]) {
      const two = await box(undefined, ['team']);
      const hostname = two.id.replace('_', '-');
      const held = exec(one.id, ['hold', hostname, '8000']);
      await expect
        .poll(async () => (await test.call('GET', `/v1/sandboxes/${one.id}/network`)).json.stats.connections)
        .toBe(1);
      expect((await leave(two.id)).status).toBeLessThan(300);
      expect((await held).exitCode).not.toBe(0);
      expect((await attempts(one.id)).attempts[0]).toMatchObject({ name: hostname, verdict: 'denied' });
      expect((await exec(one.id, ['dial', hostname, '8000'])).exitCode).not.toBe(0);
      await test.call('DELETE', `/v1/sandboxes/${two.id}`);
    }
    await test.call('DELETE', `/v1/sandboxes/${one.id}`);
  });

  it('is joined later, kept by forks, and wakes a sandbox that is paused', async () => {
    const one = await box('one', []);
    const two = await box('two', ['team']);
    const joined = await test.call('PATCH', `/v1/sandboxes/${one.id}`, { body: { networks: ['team'] } });
    expect(joined.json.networks).toEqual(['team']);
    expect((await exec(one.id, ['dial', 'two', '8000'])).stdout).toBe('hello you');
    await test.call('POST', `/v1/sandboxes/${two.id}/pause`, { body: {} });
    expect((await exec(one.id, ['dial', 'two', '8000'])).stdout).toBe('hello you');
    const { json } = await test.call('POST', `/v1/sandboxes/${one.id}/fork`, {
      body: { count: 1, namePrefix: 'child' },
    });
    const [child] = json.sandboxes;
    expect(child).toMatchObject({ name: 'child-1', networks: ['team'] });
    expect((await exec(child.id, ['dial', 'two', '8000'])).stdout).toBe('hello you');
    for (const { id } of [one, two, child]) await test.call('DELETE', `/v1/sandboxes/${id}`);
  });

  it('has a name of the form that sandboxes have', async () => {
    for (const networks of [
      ['Team'],
      ['a.b'],
      [''],
      ['team', 'team'],
      Array.from({ length: 9 }, (_, n) => `n${n}`),
    ])
      expect((await test.call('POST', '/v1/sandboxes', { body: { networks } })).status).toBe(400);
  });
});
