import { setTimeout as sleep } from 'node:timers/promises';
import type { CreateSandboxInput, SandboxStatus, Waited } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../testing/test-server.ts';

let test: TestServer;
/** Programs that wait until they are let go on, by the first of their arguments. */
const held = new Map<string, () => void>();

beforeAll(async () => {
  test = await startTestServer({
    commands: {
      hold: async ({ argv, stdout, signal }) => {
        await stdout.write(Buffer.from(`${argv[1]} begins\n`));
        await Promise.race([
          new Promise<void>((resolve) => held.set(argv[1]!, resolve)),
          new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
        ]);
        return Number(argv[2] ?? 0);
      },
    },
  });
});
afterAll(() => test[Symbol.asyncDispose]());

let count = 0;
const create = async (input: CreateSandboxInput = {}) => `/v1/sandboxes/${(await test.create(input)).id}`;
const status = async (sandbox: string) => {
  const reply = await test.call('GET', `${sandbox}/status`);
  expect(reply.status).toBe(200);
  return reply.json as SandboxStatus;
};
const wait = async (sandbox: string, query = '') => {
  const reply = await test.call('GET', `${sandbox}/wait${query}`);
  expect(reply.status, reply.text).toBe(200);
  return reply.json as Waited;
};
const post = async (path: string, body: unknown = {}) => {
  const reply = await test.call('POST', path, { body });
  expect(reply.status, reply.text).toBeLessThan(300);
};
async function holding(exitCode = 0): Promise<{ sandbox: string; go(): Promise<void> }> {
  const name = `h${count++}`;
  const sandbox = await create({ cmd: ['hold', name, String(exitCode)] });
  return {
    sandbox,
    async go() {
      while (!held.has(name)) await sleep(1);
      held.get(name)!();
    },
  };
}

/** Resolves when a client reads that command. */
function attachedTo(command: string): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { connect } = test.backend;
  test.backend.connect = async (...given) => {
    const guest = await connect(...given);
    return {
      ...guest,
      async attach(id, options) {
        const handle = await guest.attach(id, options);
        if (id === command) resolve();
        return handle;
      },
    };
  };
  return promise.finally(() => (test.backend.connect = connect));
}

describe('the status of a sandbox', () => {
  it('counts commands by how they stand, and has the end of its own', async () => {
    const { sandbox, go } = await holding(3);
    const { uid } = (await test.call('GET', sandbox)).json;
    expect(uid).toMatch(/./);
    expect(await status(sandbox)).toEqual({
      id: sandbox.split('/').at(-1),
      uid,
      phase: 'active',
      complete: false,
      active: 1,
      succeeded: 0,
      failed: 0,
      reason: null,
      message: null,
    });
    await post(`${sandbox}/exec`, { shell: 'exit 0' });
    await post(`${sandbox}/exec`, { shell: 'exit 1' });
    await go();
    await wait(sandbox);
    const ended = {
      complete: true,
      active: 0,
      succeeded: 1,
      failed: 2,
      end: { kind: 'exited', exitCode: 3 },
    };
    expect(await status(sandbox)).toMatchObject({ phase: 'active', ...ended });
    // Of a stopped sandbox the recorded commands are known, and so is its own command.
    await post(`${sandbox}/stop`);
    expect(await status(sandbox)).toMatchObject({
      phase: 'stopped',
      complete: true,
      active: 0,
      succeeded: 0,
      failed: 1,
      end: ended.end,
    });
  });

  it('is complete without an end when a sandbox without a command of its own has failed, and not when it is stopped', async () => {
    const { id } = await test.create();
    const sandbox = `/v1/sandboxes/${id}`;
    expect(await status(sandbox)).toMatchObject({ complete: false, active: 0 });
    await post(`${sandbox}/stop`);
    expect(await status(sandbox)).toMatchObject({ phase: 'stopped', complete: false });
    await post(`${sandbox}/start`);
    test.backend.crash(id, 'oom_killed');
    while ((await status(sandbox)).phase === 'active') await sleep(5);
    const failed = await status(sandbox);
    expect(failed).toMatchObject({ phase: 'failed', complete: true, reason: 'oom_killed' });
    expect(failed.message).toMatch(/./);
    expect(failed.end).toBeUndefined();
  });

  it('says of a sandbox that crashed under its command that the command is lost', async () => {
    const { sandbox } = await holding();
    test.backend.crash(sandbox.split('/').at(-1) as `sbx_${string}`);
    while ((await status(sandbox)).phase === 'active') await sleep(5);
    expect(await status(sandbox)).toMatchObject({
      phase: 'failed',
      complete: true,
      active: 0,
      failed: 1,
      end: { kind: 'lost' },
    });
  });

  it('does not wake a paused sandbox', async () => {
    const { sandbox } = await holding();
    await post(`${sandbox}/pause`, { as: 'frozen' });
    expect(await status(sandbox)).toMatchObject({ phase: 'paused', complete: false, active: 1 });
    const without = await create();
    await post(`${without}/pause`, { as: 'frozen' });
    expect(await status(without)).toMatchObject({ phase: 'paused', complete: false, active: 0 });
    expect((await test.call('GET', without)).json.state).toBe('paused');
    expect((await test.call('GET', sandbox)).json.state).toBe('paused');
  });

  it('says of a suspended sandbox that its command is lost with its processes', async () => {
    const { sandbox } = await holding();
    await post(`${sandbox}/pause`, { as: 'suspended' });
    const end = { kind: 'lost', reason: expect.stringMatching(/suspended|went away/) as string };
    expect(await status(sandbox)).toMatchObject({
      phase: 'paused',
      complete: true,
      active: 0,
      failed: 1,
      end,
    });
    expect(await wait(sandbox)).toMatchObject({ outcome: 'lost' });
  });

  it('is answered for a guest that does not answer, and its record is refused in time', async () => {
    const { connect } = test.backend;
    test.backend.connect = async (...given) => ({
      ...(await connect(...given)),
      commands: () => new Promise(() => {}),
    });
    try {
      const { sandbox } = await holding();
      expect(await status(sandbox)).toMatchObject({ phase: 'active', complete: false, active: 1 });
      expect((await test.call('GET', `${sandbox}/commands/main/output`)).status).toBe(503);
    } finally {
      test.backend.connect = connect;
    }
  });

  it('is about the command that the sandbox has now when it was started again', async () => {
    const { sandbox, go } = await holding(1);
    await go();
    expect(await wait(sandbox)).toMatchObject({ outcome: 'completed', end: { exitCode: 1 } });
    await post(`${sandbox}/stop`);
    await post(`${sandbox}/start`);
    expect(await status(sandbox)).toMatchObject({ phase: 'active', complete: false, active: 1, failed: 0 });
    expect(await wait(sandbox, '?timeoutMs=50')).toMatchObject({
      outcome: 'timed_out',
      status: { complete: false },
    });
    await go();
    expect(await wait(sandbox)).toMatchObject({ outcome: 'completed' });
  });

  it('is not shown to other projects', async () => {
    const sandbox = await create();
    expect((await test.call('GET', `${sandbox}/status`, { key: test.bob })).status).toBe(404);
    expect((await test.call('GET', `${sandbox}/wait?command=x`, { key: test.bob })).status).toBe(404);
  });
});

describe('waiting for a command', () => {
  it('answers when it ends, and with the end also afterwards, when the sandbox does not run any more', async () => {
    const { sandbox, go } = await holding(5);
    const waiting = wait(sandbox);
    await go();
    const result = { outcome: 'completed', end: { kind: 'exited', exitCode: 5 } };
    expect(await waiting).toMatchObject({ ...result, status: { complete: true, failed: 1 } });
    expect(await wait(sandbox, '?command=main&timeoutMs=0')).toMatchObject(result);
    await post(`${sandbox}/stop`);
    expect(await wait(sandbox)).toMatchObject({ ...result, status: { phase: 'stopped' } });
  });

  it('answers that the time was up while it runs', async () => {
    const { sandbox } = await holding();
    const { outcome, end, status: seen } = await wait(sandbox, '?timeoutMs=30');
    expect({ outcome, end }).toEqual({ outcome: 'timed_out', end: undefined });
    expect(seen).toMatchObject({ complete: false, active: 1 });
  });

  it('waits for a command that is not recorded, by its id', async () => {
    const sandbox = await create();
    const running = test.call('POST', `${sandbox}/exec`, {
      body: { id: 'mine', argv: ['hold', 'unrecorded', '4'] },
    });
    while (!held.has('unrecorded')) await sleep(1);
    const waiting = wait(sandbox, '?command=mine');
    expect(await wait(sandbox, '?command=mine&timeoutMs=30')).toMatchObject({ outcome: 'timed_out' });
    held.get('unrecorded')!();
    expect(await waiting).toMatchObject({ outcome: 'completed', end: { kind: 'exited', exitCode: 4 } });
    expect((await running).json.exitCode).toBe(4);
  });

  it.each([
    ['is stopped', (sandbox: string) => post(`${sandbox}/stop`), /stopped/],
    [
      'crashes',
      async (sandbox: string) => test.backend.crash(sandbox.split('/').at(-1) as `sbx_${string}`),
      /failed/,
    ],
    ['is removed', async (sandbox: string) => void (await test.call('DELETE', sandbox)), /removed/],
  ])('answers that it is lost when the sandbox %s', async (_what, end, reason) => {
    const { sandbox } = await holding();
    await post(`${sandbox}/commands`, { id: 'other', argv: ['hold', `other${count}`] });
    const unrecorded = test.call('POST', `${sandbox}/exec`, {
      body: { id: 'mine', argv: ['hold', `mine${count}`] },
    });
    while (!held.has(`mine${count}`)) await sleep(1);
    const recorded = [wait(sandbox), wait(sandbox, '?command=other')];
    await status(sandbox);
    const joined = attachedTo('mine');
    const waiting = Promise.all([...recorded, wait(sandbox, '?command=mine')]);
    await joined;
    await end(sandbox);
    for (const { outcome, end: how, status: seen } of await waiting) {
      expect(outcome).toBe('lost');
      expect(how).toMatchObject({ kind: 'lost', reason: expect.stringMatching(reason) });
      expect(seen.complete).toBe(true);
      expect(['stopped', 'failed', 'destroying']).toContain(seen.phase);
    }
    await unrecorded;
  });

  it('answers that it is lost when the sandbox goes back to where the command had not begun, and waits for the next one then', async () => {
    const { sandbox, go } = await holding(8);
    await go();
    await wait(sandbox);
    await post(`${sandbox}/snapshots`, { name: 'before' });
    await post(`${sandbox}/stop`);
    held.clear();
    await post(`${sandbox}/start`);
    const waiting = wait(sandbox);
    await status(sandbox);
    await post(`${sandbox}/rollback`, { to: 'before' });
    expect(await waiting).toMatchObject({
      outcome: 'lost',
      end: { kind: 'lost', reason: expect.stringContaining('started again') },
    });
    expect(await wait(sandbox, '?timeoutMs=30')).toMatchObject({
      outcome: 'timed_out',
      status: { active: 1 },
    });
    await go();
    expect(await wait(sandbox)).toMatchObject({ outcome: 'completed', end: { exitCode: 8 } });
  });

  it('waits through a pause, without waking the sandbox', async () => {
    const { sandbox, go } = await holding(6);
    await post(`${sandbox}/pause`, { as: 'frozen' });
    const waiting = wait(sandbox);
    expect(await wait(sandbox, '?timeoutMs=30')).toMatchObject({
      outcome: 'timed_out',
      status: { phase: 'paused' },
    });
    await post(`${sandbox}/resume`);
    await go();
    expect(await waiting).toMatchObject({ outcome: 'completed', end: { exitCode: 6 } });
  });

  it('refuses at once what could never be waited for', async () => {
    const sandbox = await create();
    const refused = await test.call('GET', `${sandbox}/wait`);
    expect(refused.status).toBe(412);
    expect(refused.json.error).toMatchObject({
      code: 'failed_precondition',
      hint: expect.stringContaining('cmd'),
    });
    expect((await test.call('GET', `${sandbox}/wait?command=none`)).json.error.code).toBe('not_found');
    await post(`${sandbox}/stop`);
    expect((await test.call('GET', `${sandbox}/wait?command=none`)).json.error.code).toBe('not_found');
    expect((await test.call('GET', '/v1/sandboxes/none/wait')).status).toBe(404);
  });
});
