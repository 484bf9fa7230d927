/** Control planes on one PostgreSQL database and one backend: a server that is killed, and two at once. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { sandboxRow } from '../../../test/conformance/records-rows.ts';
import { postgresMissing, startPostgres, type TestPostgres } from '../../../test/support/postgres.ts';
import type { Backend } from '../backends/backend.ts';
import type { StartedEgress } from '../egress/start-egress.ts';
import { testStartedEgress } from '../egress/testing/test-started-egress.ts';
import { ignoreFailure } from '../lib/in-background.ts';
import { openServerLeases } from '../records/leases/server-leases.ts';
import { openRecords } from '../records/open-records.ts';
import type { Records } from '../records/records.ts';
import { openInstallationKey } from '../records/sealing/installation-key.ts';
import { openControl } from './open-control.ts';
import type { Principal } from './tenants/principal.ts';
import { asked, memoryBackend, stuckBackend, type MemoryBackend } from './testing/test-control.ts';

const missing = postgresMissing();
if (missing) console.warn(`skipped: several servers on PostgreSQL: ${missing}`);

describe.skipIf(missing !== undefined)('servers on one PostgreSQL database', () => {
  let postgres: TestPostgres;
  let directory: string;
  let database: string;
  let backend: MemoryBackend;
  const opened: { close(): Promise<void> }[] = [];
  beforeAll(async () => {
    postgres = await startPostgres();
  });
  afterAll(() => postgres.stop());
  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'cay-servers-'));
    database = await postgres.createDatabase();
    backend = memoryBackend();
  });
  afterEach(async () => {
    for (const { close } of opened.splice(0)) await close().catch(ignoreFailure);
    rmSync(directory, { recursive: true, force: true });
  });

  /** A server with a data directory of its own, or of an earlier one. */
  async function server(
    name: string,
    on: Backend = backend,
    through = (all: Records) => all,
    egress?: StartedEgress,
  ) {
    const errors: unknown[] = [];
    const onError = (error: unknown) => void errors.push(error);
    const own = mkdtempSync(join(directory, `${name}-`));
    const data = join(directory, name);
    const records = await openRecords({
      directory: own,
      database,
      box: openInstallationKey(directory),
      onError,
    });
    const leases = await openServerLeases(records, await made(data), onError);
    const project = (await records.projects.byName('default')) ?? (await records.projects.create('default'));
    const control = await openControl({
      backend: on,
      records: through(records),
      leases: leases!,
      ...(egress && { egress }),
      previewUrl: (id, port) => `http://${port}-${id}.localhost/`,
      directories: { logs: join(own, 'logs'), buildFiles: join(own, 'build-files') },
      onError,
    });
    opened.push(control);
    const principal: Principal = { project: project.id, key: null, role: 'admin' };
    /** Its connections are gone, and its leases stay as they are. */
    const kill = () => records.close();
    return { control, records, principal, errors, kill };
  }

  async function made(path: string): Promise<string> {
    const { mkdir } = await import('node:fs/promises');
    await mkdir(path, { recursive: true });
    return path;
  }

  it('do all that is done on SQLite: create, run, snapshot, fork, roll back, remove', async () => {
    const { control, principal, errors, records } = await server('one');
    const { sandbox } = await control.create(principal, asked({ name: 'box' }), { idempotencyKey: 'k' });
    const again = await control.create(principal, asked({ name: 'box' }), { idempotencyKey: 'k' });
    expect(again).toMatchObject({ created: false, sandbox: { id: sandbox.id } });
    const { files } = await control.files(principal, 'box');
    await files.write('/home/user/a', Buffer.from('one'));
    const turn = await control.turn(principal, 'box', {});
    await files.write('/home/user/a', Buffer.from('two'));
    const forked = await control.fork(principal, 'box', { count: 2 });
    expect(forked.sandboxes).toHaveLength(2);
    await control.rollback(principal, 'box', { to: turn.turn! });
    const { data } = await files.read('/home/user/a');
    expect(Buffer.concat(await Array.fromAsync(data)).toString()).toBe('one');
    for (const { id } of [sandbox, ...forked.sandboxes]) await control.remove(principal, id);
    expect(await backend.list()).toEqual([]);
    await expect
      .poll(async () => (await records.events.list({})).map(({ type }) => type))
      .toContain('sandbox.removed');
    expect(await records.events.verify()).toMatchObject({ ok: true });
    expect(errors).toEqual([]);
  });

  it('follow each other in network policies and named networks within a second or two', async () => {
    using first = await testStartedEgress();
    using second = await testStartedEgress();
    const same = (all: Records) => all;
    const one = await server('one', backend, same, first);
    const two = await server('two', backend, same, second);
    const { principal } = one;
    const [a, b] = [
      (await one.control.create(principal, asked({ name: 'a', networks: ['team'] }))).sandbox,
      (await one.control.create(principal, asked({ name: 'b', networks: ['team'] }))).sandbox,
    ];
    const policyThere = () => second.engine.policies.get(a.id)?.[0];
    await expect.poll(policyThere, { timeout: 5000 }).toBe('packages');
    await expect.poll(async () => (await second.engine.lookup(a.id, { name: 'b' })).kind).toBe('address');
    await one.control.network.set(principal, a.id, 'none');
    await expect.poll(policyThere, { timeout: 5000 }).toBe('none');
    await two.control.network.set(principal, a.id, { allow: ['example.org'] });
    await expect.poll(() => first.engine.policies.get(a.id)?.[0]).toEqual({ allow: ['example.org'] });
    await one.control.projects.update(principal, 'default', { network: 'none' });
    await expect.poll(() => second.engine.policies.get(a.id)?.[1], { timeout: 5000 }).toBe('none');
    await one.control.update(principal, b.id, { networks: [] });
    await expect
      .poll(async () => (await second.engine.lookup(a.id, { name: 'b' })).kind, { timeout: 5000 })
      .toBe('absent');
    await one.control.remove(principal, a.id);
    await expect.poll(policyThere, { timeout: 5000 }).toBeUndefined();
    expect([...one.errors, ...two.errors]).toEqual([]);
  });

  it('make one sandbox for one idempotency key and for one name, whichever of them is asked', async () => {
    const [one, two] = [await server('one'), await server('two')];
    const calls = Array.from({ length: 10 }, (_, n) => {
      const { control, principal } = n % 2 ? one : two;
      return control.create(principal, asked({ name: 'box' }), { idempotencyKey: 'same' });
    });
    const made = await Promise.all(calls);
    expect(new Set(made.map(({ sandbox }) => sandbox.id)).size).toBe(1);
    expect(made.filter(({ created }) => created)).toHaveLength(1);
    expect(await backend.list()).toHaveLength(1);
  });

  it('leave a sandbox that is recorded and not yet begun to the server that was asked for it', async () => {
    const begins = Promise.withResolvers<void>();
    // Between the record and the first operation nothing gets on.
    const through = (records: Records): Records => {
      const transaction: Records['transaction'] = async (work, options) => {
        if ((await records.sandboxes.list({})).length > 0) await begins.promise;
        return records.transaction(work, options);
      };
      return new Proxy(records, {
        get: (target, name) => (name === 'transaction' ? transaction : Reflect.get(target, name, target)),
      });
    };
    const one = await server('one', backend, through);
    const creating = one.control.create(one.principal, asked({ name: 'box' }));
    await expect.poll(async () => (await one.records.sandboxes.list({})).length).toBe(1);
    // If this one took it over, it would be at it for ever.
    const two = await server('two', stuckBackend(backend, 'ensure', false).backend);
    await sleep(300);
    begins.resolve();
    const { sandbox, created } = await creating;
    expect([created, sandbox.state]).toEqual([true, 'active']);
    const events = async () =>
      (await two.records.events.list({ sandbox: sandbox.id })).map(({ type }) => type);
    await expect.poll(events).toEqual(['sandbox.created']);
    await two.control.remove(two.principal, sandbox.id);
    expect([one.errors, two.errors]).toEqual([[], []]);
  });

  it('do not change one sandbox at the same time', async () => {
    const stuck = stuckBackend(backend, 'stop', false);
    const [one, two] = [await server('one', stuck.backend), await server('two')];
    const { sandbox } = await one.control.create(one.principal, asked());
    void one.control.stop(one.principal, sandbox.id).catch(ignoreFailure);
    await stuck.reached;
    for (const change of [
      () => two.control.stop(two.principal, sandbox.id),
      () => two.control.turn(two.principal, sandbox.id, {}),
      () => two.control.remove(two.principal, sandbox.id),
    ])
      await expect(change()).rejects.toMatchObject({ code: 'conflict', details: { sandbox: sandbox.id } });
    // Reading and running commands go on.
    expect((await two.control.get(two.principal, sandbox.id)).state).toBe('active');
  });

  it.each([true, false])('leave a fork to the server that is at it (with a key: %s)', async (keyed) => {
    const one = await server('one');
    const { sandbox: parent } = await one.control.create(one.principal, asked());
    const { id: snapshot } = await one.control.turn(one.principal, parent.id, {});
    const { sandbox: made } = await one.control.create(one.principal, asked());
    // Of two children one is made, and the other is being made by a third server.
    const { project } = one.principal;
    const coming = sandboxRow(project, { origin: { snapshot, memory: false, start: true } });
    await one.records.sandboxes.insert(coming);
    const children = [made.id, coming.id];
    await one.records.forks.insert({
      id: 'f',
      project,
      snapshot,
      children,
      keyed,
      made: false,
      createdAtMs: Date.now(),
    });
    for (const sandbox of [parent.id, coming.id])
      await one.records.leases.acquire({ sandbox, holder: 'three/1', operation: 'fork', ttlMs: 60_000 });
    const two = await server('two');
    await sleep(300);
    expect(await two.records.forks.get('f')).toMatchObject({ made: false });
    expect(await two.records.sandboxes.get(coming.id)).toMatchObject({ state: 'creating' });
    expect((await two.control.get(two.principal, made.id)).state).toBe('active');
    expect(two.errors).toEqual([]);
  });

  it('remove nothing that another one has taken over meanwhile', async () => {
    const held = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<void>();
    const slow = new Proxy(backend, {
      get(target, name) {
        if (name !== 'ensure') return Reflect.get(target, name) as unknown;
        return async (...given: Parameters<Backend['ensure']>) => {
          const observed = await target.ensure(...given);
          reached.resolve();
          await held.promise;
          return observed;
        };
      },
    });
    const one = await server('one', slow);
    const creating = one.control.create(one.principal, asked({ name: 'box' }));
    await reached.promise;
    // As if it had stood still for longer than a lease lasts.
    await one.records.leases.releaseOf('');
    const two = await server('two');
    await expect.poll(async () => (await two.control.get(two.principal, 'box')).state).toBe('active');
    held.resolve();
    await expect(creating).rejects.toMatchObject({ code: 'conflict', details: { leaseLost: true } });
    const { id, state } = await two.control.get(two.principal, 'box');
    expect([state, (await backend.observe(id)).phase]).toEqual(['active', 'ready']);
  });

  it('take over what a killed run of the same data directory was at, at once', async () => {
    const stuck = stuckBackend(backend, 'stop', true);
    const first = await server('one', stuck.backend);
    const { sandbox } = await first.control.create(first.principal, asked());
    void first.control.stop(first.principal, sandbox.id).catch(ignoreFailure);
    await stuck.reached;
    await first.kill();
    const begun = performance.now();
    const next = await server('one');
    await expect.poll(async () => (await next.control.get(next.principal, sandbox.id)).state).toBe('stopped');
    await next.control.start(next.principal, sandbox.id);
    expect(performance.now() - begun).toBeLessThan(10_000);
  });
});
