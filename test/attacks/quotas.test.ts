/** A tenant tries to fill the disk or the machine for the others with what it makes. */
import { randomBytes } from 'node:crypto';
import { readdir, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, type TestContext } from 'vitest';
import { onEachPlatform, requireAbility } from './support/platforms.ts';
import type { Reply, Target, Tenant } from './support/target.ts';

const MiB = 1024 ** 2;

async function setQuota(target: Target, tenant: Tenant, quota: object): Promise<void> {
  const { status, text } = await target.admin.call('PATCH', `/v1/projects/${tenant.project}`, {
    body: { quota },
  });
  if (status !== 200) throw new Error(`The quota was not set: ${text}`);
}

function expectRefused(reply: Reply, quota: string): void {
  expect(reply.status, reply.text).toBe(429);
  expect(reply.json.error.details).toMatchObject({
    quota,
    limit: expect.any(Number),
    used: expect.any(Number),
    usedBy: expect.anything(),
  });
}

/** Calls until one is refused by this quota. */
async function untilRefused(quota: string, most: number, call: () => Promise<Reply>): Promise<number> {
  for (let done = 0; done < most; done++) {
    const reply = await call();
    if (reply.status < 300) continue;
    expectRefused(reply, quota);
    return done;
  }
  throw new Error(`${most} calls, and none was refused by the quota "${quota}"`);
}

onEachPlatform('a tenant makes more than its share', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start({
      flags: [
        '--default-quota',
        'snapshots=40,webhooks=7',
        '--default-quota',
        'upload-bytes=3m',
        '--max-quota',
        'snapshots=50,pids=100000',
        // The quota is to be seen, not the limit of one sandbox.
        '--max-limit',
        'pids=none',
      ],
      env: { CAY_WEBHOOK_PRIVATE: '1' },
    });
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it('gets no sandbox without a limit of processes, and no more of them than its quota', async () => {
    const { alice, bob } = target;
    expectRefused(await alice.call('POST', '/v1/sandboxes', { body: { limits: { pids: null } } }), 'pids');
    expectRefused(
      await alice.call('POST', '/v1/sandboxes', { body: { limits: { pids: 4_000_000 } } }),
      'pids',
    );
    await setQuota(target, alice, { pids: 5000 });
    const { id } = await alice.create();
    await alice.create();
    expectRefused(await alice.call('POST', '/v1/sandboxes', { body: {} }), 'pids');
    expectRefused(
      await alice.call('PATCH', `/v1/sandboxes/${id}`, { body: { limits: { pids: 5000 } } }),
      'pids',
    );
    await bob.create();
    await setQuota(target, alice, { pids: null });
  });

  it('is held to the operator’s default of snapshots, and may not have more than the maximum', async (context) => {
    requireAbility(context, target, 'snapshots');
    const { bob } = target;
    const { id } = await bob.create();
    const taken = await untilRefused('snapshots', 45, () =>
      bob.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} }),
    );
    expect(taken).toBe(40);
    const raised = await target.admin.call('PATCH', `/v1/projects/${bob.project}`, {
      body: { quota: { snapshots: 51 } },
    });
    expect(raised.status).toBe(400);
    expect(raised.json.error.details).toMatchObject({ quota: 'snapshots', asked: 51, limit: 50 });
    const { json } = await bob.call('GET', '/v1/projects');
    expect(json.projects[0]).toMatchObject({
      quota: { snapshots: null },
      effectiveQuota: { snapshots: 40, webhooks: 7 },
    });
  });

  it('fills, keeps and removes a sandbox again and again, and is refused when the bytes are used up', async (context) => {
    requireAbility(context, target, 'snapshots');
    const { alice } = target;
    await setQuota(target, alice, { snapshotBytes: 5 * MiB });
    const rounds = await untilRefused('snapshotBytes', 20, async () => {
      const { id } = await alice.create();
      await alice.call('PUT', `/v1/sandboxes/${id}/files?path=/tmp/fill`, { body: randomBytes(MiB) });
      const reply = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: { name: 'kept' } });
      await alice.call('DELETE', `/v1/sandboxes/${id}`);
      return reply;
    });
    expect(rounds).toBeLessThanOrEqual(5);
    // Removing one gives its bytes back.
    const { json } = await alice.call('GET', '/v1/snapshots');
    expect(json.snapshots[0].bytes).toBeGreaterThanOrEqual(MiB);
    await alice.call('DELETE', `/v1/snapshots/${json.snapshots[0].id}`);
    const { id } = await alice.create();
    await alice.call('PUT', `/v1/sandboxes/${id}/files?path=/tmp/fill`, { body: randomBytes(MiB) });
    expect((await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} })).status).toBe(201);
    await setQuota(target, alice, { snapshotBytes: null });
  });

  it('sends fifty uploads at once by one link', async () => {
    const { alice, bob } = target;
    const linkOf = async (tenant: Tenant, letter: string) => {
      const reply = await target.stranger('GET', `/templates/mine/files/${letter.repeat(64)}`, {
        headers: { 'x-api-key': tenant.key },
      });
      expect(reply.status, reply.text).toBe(201);
      const url = new URL(reply.json.url);
      return url.pathname + url.search;
    };
    const link = await linkOf(alice, 'a');
    const slow = () => {
      let sent = 0;
      return new ReadableStream({
        async pull(controller) {
          if (sent++ === 20) return controller.close();
          controller.enqueue(new Uint8Array(64 * 1024));
          await new Promise((resolve) => setTimeout(resolve, 10));
        },
      });
    };
    const put = async () =>
      (
        await fetch(target.url + link, { method: 'PUT', body: slow(), duplex: 'half' } as RequestInit).catch(
          () => ({ status: 0 }),
        )
      ).status;
    const statuses = await Promise.all(Array.from({ length: 50 }, put));
    expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(2);
    // One that is larger than all that may be under way is stopped there, and leaves nothing.
    const large = await target.stranger('PUT', await linkOf(alice, 'b'), { body: new Uint8Array(4 * MiB) });
    expect([large.status, large.text]).toEqual([
      429,
      expect.stringContaining('bytes of uploads and imports'),
    ]);
    // Others are not concerned.
    expect((await target.stranger('PUT', await linkOf(bob, 'a'), { body: new Uint8Array(MiB) })).status).toBe(
      200,
    );
    await target.requireAlive();
  });

  it('makes webhooks up to its quota', async () => {
    const made = await untilRefused('webhooks', 10, () =>
      target.alice.call('POST', '/v1/webhooks', { body: { url: `http://127.0.0.1:${target.port}/healthz` } }),
    );
    expect(made).toBe(7);
  });

  it('makes templates up to its quota, and can still replace one', async ({ skip }) => {
    skip(target.lacks('snapshots') !== undefined, target.lacks('snapshots'));
    const { alice, bob } = target;
    await setQuota(target, alice, { templates: 5 });
    const { id } = await alice.create();
    const { json } = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
    let number = 0;
    const save = (name = `mine-${number++}`) =>
      alice.call('PUT', `/v1/templates/${name}`, { body: { snapshot: json.id, replace: true } });
    expect(await untilRefused('templates', 10, () => save())).toBe(5);
    expect((await save('mine-0')).status).toBe(200);
    // A build is refused before it is done, tags among its names.
    const build = (tenant: Tenant, tags: string[]) =>
      tenant.call('POST', '/v3/templates', { body: { name: 'built', tags } });
    expect([(await build(alice, ['a'])).status, (await build(bob, ['a'])).status]).toEqual([429, 202]);
    await alice.call('DELETE', '/v1/templates/mine-0');
    expect([(await build(alice, ['a', 'b'])).status, (await build(alice, ['a'])).status]).toEqual([429, 202]);
  });

  it('uses idempotency keys up to its quota, repeats those that it has, and has them back with a sandbox', async () => {
    const { alice, bob } = target;
    const { id } = await alice.create();
    const run = (tenant: Tenant, sandbox: string, key: string) =>
      tenant.call('POST', `/v1/sandboxes/${sandbox}/exec`, {
        body: { argv: ['echo', 'once'] },
        headers: { 'idempotency-key': key },
      });
    const first = await run(alice, id, 'key-0');
    expect(first.status).toBe(200);
    await setQuota(target, alice, { idempotencyKeys: 20 });
    let number = 1;
    const done = await untilRefused('idempotencyKeys', 30, () => run(alice, id, `key-${number++}`));
    // Earlier calls of this project had keys as well.
    expect(done).toBeLessThanOrEqual(19);
    const webhook = () =>
      alice.call('POST', '/v1/webhooks', {
        body: { url: `http://127.0.0.1:${target.port}/healthz` },
        headers: { 'idempotency-key': 'hook' },
      });
    const fork = () =>
      alice.call('POST', `/v1/sandboxes/${id}/fork`, { body: {}, headers: { 'idempotency-key': 'twin' } });
    const create = () =>
      alice.call('POST', '/v1/sandboxes', { body: {}, headers: { 'idempotency-key': 'another' } });
    await setQuota(target, alice, { webhooks: 50 });
    const snapshots = async () => (await alice.call('GET', '/v1/snapshots')).json.snapshots.length;
    const before = await snapshots();
    for (const call of [create, fork, webhook]) expectRefused(await call(), 'idempotencyKeys');
    expect(await snapshots()).toBe(before);
    // A call that was made is answered as it was: its key is not given up for another.
    expect((await run(alice, id, 'key-0')).json.id).toBe(first.json.id);
    // Without a key, and for others, nothing has changed.
    expect((await alice.exec(id, ['true'])).exitCode).toBe(0);
    expect((await run(bob, (await bob.create()).id, 'key-0')).status).toBe(200);
    await alice.call('DELETE', `/v1/sandboxes/${id}`);
    await expect.poll(async () => (await create()).status, { timeout: 5000 }).toBe(201);
    await setQuota(target, alice, { idempotencyKeys: null, webhooks: null });
  });

  it('leaves commands running that write much, and loses its own oldest output and nobody else’s', async () => {
    const { alice, bob } = target;
    const run = async (tenant: Tenant, id: string) => {
      const started = await tenant.call('POST', `/v1/sandboxes/${id}/commands`, {
        body: { argv: ['cat', '/tmp/fill'] },
      });
      expect(started.status, started.text).toBe(201);
      await expect
        .poll(
          async () =>
            (await tenant.call('GET', `/v1/sandboxes/${id}/commands/${started.json.command.id}`)).json.end,
          { timeout: 30_000 },
        )
        .toBeDefined();
      return started.json.command.id as string;
    };
    const ids = await Promise.all([alice, alice, bob].map(async (tenant) => (await tenant.create()).id));
    const of = [alice, alice, bob];
    for (const [at, id] of ids.entries())
      await of[at]!.call('PUT', `/v1/sandboxes/${id}/files?path=/tmp/fill`, {
        body: new Uint8Array(400_000),
      });
    await run(bob, ids[2]!);
    await setQuota(target, alice, { logBytes: 1_000_000 });
    for (const at of [0, 0, 1, 1]) await run(alice, ids[at]!);
    const onDisk = async (sandboxes: string[]) => {
      let bytes = 0;
      for (const id of sandboxes) {
        const place = join(target.dataDir, 'control/logs', id);
        for (const name of await readdir(place)) bytes += (await stat(join(place, name))).size;
      }
      return bytes;
    };
    await expect.poll(() => onDisk(ids.slice(0, 2)), { timeout: 30_000 }).toBeLessThan(1_000_000);
    expect(await onDisk(ids.slice(2))).toBeGreaterThan(100_000);
  });

  it('repeats a call of another with the same idempotency key, and gets its own', async () => {
    const { alice, bob } = target;
    const headers = { 'idempotency-key': 'the-same-key' };
    await setQuota(target, bob, { snapshots: 50 });
    const [one, other] = await Promise.all(
      [alice, bob].map((tenant) => tenant.call('POST', '/v1/sandboxes', { body: {}, headers })),
    );
    expect([one!.status, other!.status]).toEqual([201, 201]);
    expect(one!.json.id).not.toBe(other!.json.id);
    if (target.lacks('snapshots')) return;
    const fork = (tenant: Tenant, id: string) =>
      tenant.call('POST', `/v1/sandboxes/${id}/fork`, {
        body: { count: 1 },
        headers: { 'idempotency-key': 'f' },
      });
    const [first, second] = [await fork(alice, one!.json.id), await fork(bob, other!.json.id)];
    expect(first.json.sandboxes[0].project).toBe(alice.project);
    expect(second.json.sandboxes[0].project).toBe(bob.project);
  });

  it('sees in the health of the server nothing of others', async () => {
    const all = (await target.admin.call('GET', '/v1/health')).json.sandboxes;
    const own = (await target.bob.call('GET', '/v1/health')).json;
    const listed = (await target.bob.call('GET', '/v1/sandboxes')).json.sandboxes.length;
    expect(
      Object.values(own.sandboxes as Record<string, number>).reduce((sum, count) => sum + count, 0),
    ).toBe(listed);
    expect(own.sandboxes).not.toEqual(all);
    expect(own.recentErrors).toEqual([]);
  });
});

onEachPlatform('a tenant fills the disk with what it keeps', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start();
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  /** Each snapshot on Docker is a tree of its own, and counts whole. */
  function requireSharing({ skip, task }: Pick<TestContext, 'skip' | 'task'>): void {
    if (platform.name !== 'docker') return;
    const reason = 'snapshots on Docker share nothing';
    console.info(`${task.suite?.name}: "${task.name}" skipped: ${reason}`);
    skip(reason);
  }

  it(
    'cannot fill the disk by filling, keeping and removing sandboxes',
    { timeout: 60_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      requireAbility(context, target, 'diskLimit');
      const { alice } = target;
      await setQuota(target, alice, { diskBytes: 64 * MiB, snapshotBytes: 100 * MiB });
      const rounds = await untilRefused('snapshotBytes', 6, async () => {
        const { id } = await alice.create({ limits: { diskBytes: 64 * MiB } });
        await alice.exec(id, ['sh', '-c', 'head -c 40000000 /dev/urandom > /tmp/fill']);
        const reply = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: { name: 'kept' } });
        // What was written is counted, neither more nor much less.
        if (reply.status === 201) expect(reply.json.bytes / 40e6).toBeCloseTo(1, 0);
        await alice.call('DELETE', `/v1/sandboxes/${id}`);
        return reply;
      });
      expect(rounds).toBe(2);
    },
  );

  it(
    'counts what turns share once, and what was overwritten between them',
    { timeout: 60_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      requireSharing(context);
      const { bob } = target;
      const { id } = await bob.create();
      const turn = async () => (await bob.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} })).json;
      await bob.exec(id, ['sh', '-c', 'head -c 20000000 /dev/urandom > /tmp/data']);
      const first = await turn();
      const second = await turn();
      await bob.exec(id, [
        'sh',
        '-c',
        'head -c 20000000 /dev/urandom | dd of=/tmp/data conv=notrunc bs=1M 2>/dev/null',
      ]);
      const third = await turn();
      expect(first.bytes).toBeGreaterThan(19e6);
      expect(second.bytes).toBeLessThan(2e6);
      expect(third.bytes).toBeGreaterThan(19e6);
      // The second still has all that the first one had.
      expect((await bob.call('DELETE', `/v1/snapshots/${first.id}`)).status).toBe(204);
      expect((await bob.call('GET', `/v1/snapshots/${second.id}`)).json.bytes).toBeGreaterThan(19e6);
    },
  );

  it(
    'cannot have what a removed snapshot has left counted for nobody',
    { timeout: 60_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      const { alice } = target;
      await setQuota(target, alice, { diskBytes: null, snapshotBytes: 100 * MiB });
      for (const { id } of (await alice.call('GET', '/v1/snapshots')).json.snapshots)
        await alice.call('DELETE', `/v1/snapshots/${id}`);
      const { id } = await alice.create();
      await alice.exec(id, ['sh', '-c', 'head -c 60000000 /dev/urandom > /tmp/fill']);
      const take = async (of: string) =>
        (await alice.call('POST', `/v1/sandboxes/${of}/snapshots`, { body: {} })).json.id as string;
      const first = await take(id);
      const copies: string[] = [];
      for (let made = 0; made < 2; made++) {
        const copy = await alice.create({ snapshot: first as `snap_${string}` });
        copies.push(await take(copy.id));
        await alice.call('DELETE', `/v1/sandboxes/${copy.id}`);
      }
      await alice.call('DELETE', `/v1/sandboxes/${id}`);
      for (const gone of [first, copies[0]!])
        expect((await alice.call('DELETE', `/v1/snapshots/${gone}`)).status).toBe(204);
      // The last one has all of it.
      const other = await alice.create();
      await alice.exec(other.id, ['sh', '-c', 'head -c 60000000 /dev/urandom > /tmp/fill']);
      expectRefused(
        await alice.call('POST', `/v1/sandboxes/${other.id}/snapshots`, { body: {} }),
        'snapshotBytes',
      );
      expect((await alice.call('GET', `/v1/snapshots/${copies[1]}`)).json.bytes).toBeGreaterThan(59e6);
    },
  );

  it(
    'cannot fill the archive store with copies of what its turns share',
    { timeout: 90_000 },
    async (context) => {
      requireAbility(context, target, 'snapshots');
      requireSharing(context);
      const { alice } = target;
      for (const kind of ['sandboxes', 'snapshots']) {
        const { json } = await alice.call('GET', `/v1/${kind}`);
        for (const { id } of json[kind]) await alice.call('DELETE', `/v1/${kind}/${id}`);
      }
      const { id } = await alice.create();
      await alice.exec(id, ['sh', '-c', 'head -c 20000000 /dev/urandom > /tmp/fill']);
      for (let turn = 0; turn < 8; turn++)
        await alice.call('POST', `/v1/sandboxes/${id}/turns`, { body: {} });
      expectRefused(
        await alice.call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'archived' } }),
        'snapshotBytes',
      );
      expect(await readdir(join(target.dataDir, 'archives')).catch(() => [])).toEqual([]);
      expect((await alice.exec(id, ['sh', '-c', 'wc -c < /tmp/fill'])).stdout.trim()).toBe('20000000');
      // With room for all of it they count as what they are there, and one that comes back as what it is
      // here.
      await setQuota(target, alice, { snapshotBytes: 400 * MiB });
      expect(
        (await alice.call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'archived' } })).status,
      ).toBe(200);
      const { snapshots } = (await alice.call('GET', '/v1/snapshots')).json;
      expect(snapshots.length).toBeGreaterThanOrEqual(8);
      for (const { bytes, archived } of snapshots) expect([archived, bytes > 19e6]).toEqual([true, true]);
      await setQuota(target, alice, { snapshotBytes: 1 });
      expectRefused(
        await alice.call('POST', '/v1/sandboxes', { body: { snapshot: snapshots.at(-1).id } }),
        'snapshotBytes',
      );
      expect((await alice.call('POST', `/v1/sandboxes/${id}/resume`, { body: {} })).status).toBe(200);
      expect((await alice.exec(id, ['sh', '-c', 'wc -c < /tmp/fill'])).stdout.trim()).toBe('20000000');
    },
  );

  it(
    'cannot fill the host’s disk with memory images, of snapshots or of sandboxes that rest',
    { timeout: 90_000 },
    async (context) => {
      requireAbility(context, target, 'memorySnapshots');
      const { bob } = target;
      const { id } = await bob.create();
      const code = 'import os,time; b=os.urandom(60000000); print("filled", flush=True); time.sleep(600)';
      await bob.call('POST', `/v1/sandboxes/${id}/commands`, { body: { argv: ['python3', '-c', code] } });
      await expect
        .poll(async () => (await bob.call('GET', `/v1/sandboxes/${id}/stats`)).json.memoryBytes, {
          timeout: 20_000,
        })
        .toBeGreaterThan(55e6);
      const used = (await bob.call('GET', '/v1/snapshots')).json.snapshots.reduce(
        (sum: number, { bytes }: { bytes: number }) => sum + bytes,
        0,
      );
      await setQuota(target, bob, { snapshotBytes: used + 200 * MiB });
      const before = await statfs(target.dataDir);
      const taken = await untilRefused('snapshotBytes', 10, () =>
        bob.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: { memory: true } }),
      );
      expect(taken).toBeGreaterThanOrEqual(1);
      expect(taken).toBeLessThanOrEqual(3);
      const after = await statfs(target.dataDir);
      expect((before.bavail - after.bavail) * after.bsize).toBeLessThan(1024 * MiB);
      // Hibernation writes the same; asked for it is refused, by a timeout it is frozen instead.
      expectRefused(
        await bob.call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'hibernated' } }),
        'snapshotBytes',
      );
      const paused = await bob.call('POST', `/v1/sandboxes/${id}/pause`, { body: {} });
      expect(paused.json.pausedAs).toBe('frozen');
      await setQuota(target, bob, { snapshotBytes: null });
      expect(
        (await bob.call('POST', `/v1/sandboxes/${id}/pause`, { body: { as: 'hibernated' } })).json.pausedAs,
      ).toBe('hibernated');
      // The image counts as long as it is there.
      await setQuota(target, bob, { snapshotBytes: 1 });
      const refused = await bob.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
      expectRefused(refused, 'snapshotBytes');
      expect(refused.json.error.details.usedBy.hibernated).toBeGreaterThan(50e6);
    },
  );
});
