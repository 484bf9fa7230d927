import { afterAll, beforeAll, expect, it } from 'vitest';
import { forgedArchive } from './support/forged-archive.ts';
import { onEachPlatform, requireAbility } from './support/platforms.ts';
import type { Reply, Target, Tenant } from './support/target.ts';

const ARCHIVE = { 'content-type': 'application/vnd.cay.snapshot' };

/** What is refused because of a runtime, an image or a role. */
function denied({ status, json }: Reply): unknown {
  expect([status, json?.error?.code]).toEqual([403, 'permission_denied']);
  return json.error.details;
}

/** What is refused because of a maximum. */
function beyond({ status, json }: Reply): unknown {
  expect([status, json?.error?.code]).toEqual([400, 'invalid_argument']);
  return json.error.details;
}

async function snapshotOf(tenant: Tenant, sandbox: string): Promise<string> {
  const { status, json, text } = await tenant.call('POST', `/v1/sandboxes/${sandbox}/snapshots`, {
    body: {},
  });
  if (status !== 201) throw new Error(text);
  return json.id as string;
}

/** The archive of a snapshot as its owner wants it to be read. */
async function importForged(
  target: Target,
  tenant: Tenant,
  snapshot: string,
  change: (manifest: Record<string, unknown>) => object,
): Promise<Reply> {
  const exported = await fetch(`${target.url}/v1/snapshots/${snapshot}/archive`, {
    headers: { authorization: `Bearer ${tenant.key}` },
  });
  const body = await forgedArchive(new Uint8Array(await exported.arrayBuffer()), change);
  return tenant.call('POST', '/v1/snapshots', { body, headers: ARCHIVE });
}

onEachPlatform('a tenant asks for less isolation than the operator allows', (platform) => {
  let target: Target;
  const own = platform.name === 'docker' ? 'runc' : platform.name;
  beforeAll(async () => {
    target = await platform.start({ flags: ['--allow-runtime', own] });
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  it.each(['process', 'crun', 'default', own === 'runc' ? 'runsc' : 'runc'])(
    'refuses the runtime "%s", to members and to admins',
    async (runtime) => {
      for (const tenant of [target.alice, target.admin]) {
        const reply = await tenant.call('POST', '/v1/sandboxes', { body: { runtime } });
        expect(denied(reply)).toEqual({ runtime, allowed: [own] });
        const { json } = await tenant.call('POST', '/v1/validate', { body: { runtime } });
        expect(json).toMatchObject({ ok: false });
      }
      await target.requireAlive();
    },
  );

  it('tells what may be asked for, and does not offer what isolates nothing', async () => {
    const { json } = await target.alice.call('GET', '/v1/capabilities');
    expect(json).toMatchObject({
      runtimes: [own],
      policy: { runtimes: [own], maxima: { pids: 8192, commands: 256 } },
    });
  });

  it('refuses it by a snapshot, a template, an archive with another spec, and E2B’s create of those', async (context) => {
    requireAbility(context, target, 'snapshots');
    const { alice } = target;
    const { id } = await alice.create();
    const snapshot = await snapshotOf(alice, id);
    denied(await alice.call('POST', '/v1/sandboxes', { body: { snapshot, runtime: 'process' } }));
    for (const forge of [
      (manifest: Record<string, unknown>) => ({
        ...manifest,
        spec: { ...(manifest['spec'] as object), runtime: 'process' },
      }),
      (manifest: Record<string, unknown>) => ({
        ...manifest,
        runtime: 'process',
        spec: { ...(manifest['spec'] as object), runtime: 'process' },
      }),
    ]) {
      const imported = await importForged(target, alice, snapshot, forge);
      expect(imported.status).toBe(201);
      const forged = imported.json.id as string;
      denied(await alice.call('POST', '/v1/sandboxes', { body: { snapshot: forged } }));
      await alice.call('PUT', '/v1/templates/forged', { body: { snapshot: forged, replace: true } });
      denied(await alice.call('POST', '/v1/sandboxes', { body: { template: 'forged' } }));
      for (const templateID of [forged, 'forged']) {
        expect(
          (
            await alice.call('POST', '/v2/sandboxes', {
              body: { templateID },
              headers: { 'x-api-key': alice.key },
            })
          ).status,
        ).toBe(403);
      }
    }
    // A manifest that says so beside an innocent spec leads to the runtime of the server.
    const { json } = await importForged(target, alice, snapshot, (manifest) => ({
      ...manifest,
      runtime: 'process',
    }));
    const made = await alice.create({ snapshot: json.id as `snap_${string}` });
    expect(made.runtime).toBe(own);
    await target.requireAlive();
  });
});

onEachPlatform('a tenant reaches for what an admin may have', (platform) => {
  let target: Target;
  const isDocker = platform.name === 'docker';
  let key: string;
  let member: Tenant['call'];
  beforeAll(async () => {
    const runtimes = isDocker
      ? ['--allow-runtime', 'runc']
      : ['--allow-runtime', `${platform.name},process`, '--allow-process'];
    target = await platform.start({
      flags: [...runtimes, '--max-limit', 'pids=512,cpus=4,timeout=1h,commands=4'],
    });
    // A member's key of the same project in which an admin has such a sandbox.
    key = (await target.admin.call('POST', '/v1/keys', { body: { name: 'colleague', project: 'default' } }))
      .json.secret;
    member = (method, path, options = {}) =>
      target.stranger(method, path, {
        ...options,
        headers: { authorization: `Bearer ${key}`, 'x-api-key': key, ...options.headers },
      });
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose]());

  it.skipIf(isDocker)('keeps a sandbox without isolation to admins, whatever the way to it', async () => {
    const { admin, alice } = target;
    denied(await alice.call('POST', '/v1/sandboxes', { body: { runtime: 'process' } }));
    const { id, runtime } = await admin.create({ runtime: 'process', name: 'bare' });
    expect(runtime).toBe('process');
    const snapshot = await snapshotOf(admin, id);
    await admin.call('PUT', '/v1/templates/bare', { body: { snapshot } });

    denied(await member('POST', '/v1/sandboxes', { body: { runtime: 'process' } }));
    denied(await member('POST', '/v1/sandboxes', { body: { snapshot } }));
    denied(await member('POST', '/v1/sandboxes', { body: { template: 'bare' } }));
    denied(await member('POST', `/v1/sandboxes/${id}/fork`, { body: {} }));
    denied(
      await member('POST', `/v1/sandboxes/${id}/exec`, {
        body: { argv: ['cat', '/proc/1/root/etc/shadow'] },
      }),
    );
    denied(await member('POST', `/v1/sandboxes/${id}/commands`, { body: { argv: ['true'] } }));
    denied(await member('GET', `/v1/sandboxes/${id}/files?path=/proc/1/root/etc/shadow`));
    denied(await member('PUT', `/v1/sandboxes/${id}/ports/22`, { body: { visibility: 'public' } }));
    for (const templateID of [snapshot, 'bare']) {
      expect((await member('POST', '/v2/sandboxes', { body: { templateID } })).status).toBe(403);
      // Its ports would be open to everybody, and they are the host's.
      expect(
        (
          await admin.call('POST', '/v2/sandboxes', {
            body: { templateID },
            headers: { 'x-api-key': admin.key },
          })
        ).status,
      ).toBe(403);
    }
    expect(
      (await member('POST', `/v2/sandboxes/${id.slice(4)}/connect`, { body: { timeout: 60 } })).status,
    ).toBe(403);

    await admin.call('POST', `/v1/sandboxes/${id}/stop`, { body: { graceMs: 0 } });
    denied(await member('POST', `/v1/sandboxes/${id}/start`));
    denied(await member('POST', '/v1/sandboxes', { body: { name: 'bare', getOrCreate: true } }));
    denied(await member('POST', `/v1/sandboxes/${id}/rollback`, { body: { to: snapshot } }));
    expect((await admin.call('POST', `/v1/sandboxes/${id}/start`)).status).toBe(200);
    expect((await admin.call('DELETE', `/v1/sandboxes/${id}`)).status).toBe(204);
  });

  it.skipIf(isDocker)('does not get it by an archive that says so, with a spec that does not', async () => {
    const { id } = await target.alice.create();
    const snapshot = await snapshotOf(target.alice, id);
    const { json } = await importForged(target, target.alice, snapshot, (manifest) => ({
      ...manifest,
      runtime: 'process',
    }));
    const made = await target.alice.call('POST', '/v1/sandboxes', { body: { snapshot: json.id } });
    expect(made.json.runtime ?? 'none').not.toBe('process');
  });

  it('refuses limits beyond the maximum, unlimited included, at create and later', async () => {
    const { alice } = target;
    const create = (body: object) => alice.call('POST', '/v1/sandboxes', { body });
    for (const pids of [null, 513, 4_000_000])
      expect(beyond(await create({ limits: { pids } }))).toEqual({
        limit: 'pids',
        asked: pids,
        maximum: 512,
      });
    beyond(await create({ limits: { cpus: null } }));
    beyond(await create({ limits: { memoryBytes: null } }));
    // What the platform cannot limit has no maximum.
    if (!target.lacks('diskLimit')) beyond(await create({ limits: { diskBytes: null } }));
    beyond(await create({ timeoutMs: null }));
    beyond(await create({ timeoutMs: 3_600_001 }));

    const { id, limits, timeoutMs } = await alice.create();
    expect([limits.pids, timeoutMs]).toEqual([512, 3_600_000]);
    const change = (body: object) => alice.call('PATCH', `/v1/sandboxes/${id}`, { body });
    beyond(await change({ limits: { pids: null } }));
    beyond(await change({ limits: { pids: 100, cpus: 5 } }));
    beyond(await change({ timeoutMs: null }));
    const e2b = { headers: { 'x-api-key': alice.key } };
    expect(
      (await alice.call('POST', `/sandboxes/${id.slice(4)}/timeout`, { body: { timeout: 7200 }, ...e2b }))
        .status,
    ).toBe(400);
    expect((await alice.call('GET', `/v1/sandboxes/${id}`)).json).toMatchObject({ limits, timeoutMs });

    if (target.lacks('snapshots')) return;
    const snapshot = await snapshotOf(alice, id);
    const raised = (manifest: Record<string, unknown>) => {
      const spec = manifest['spec'] as { limits: object };
      return { ...manifest, spec: { ...spec, limits: { ...spec.limits, pids: null } } };
    };
    const imported = await importForged(target, alice, snapshot, raised);
    expect(beyond(await create({ snapshot: imported.json.id }))).toMatchObject({
      limit: 'pids',
      asked: null,
    });
    expect((await create({ snapshot: imported.json.id, limits: { pids: 64 } })).json.limits.pids).toBe(64);
    await target.requireAlive();
  });

  it('runs no more commands of a sandbox at once than it may', async () => {
    const { alice } = target;
    const { id } = await alice.create();
    const start = () =>
      alice.call('POST', `/v1/sandboxes/${id}/commands`, { body: { argv: ['sleep', '600'] } });
    const started: Reply[] = [];
    for (let count = 0; count < 4; count++) started.push(await start());
    expect(started.map(({ status }) => status)).toEqual([201, 201, 201, 201]);
    const refused = await start();
    expect([refused.status, refused.json.error.code, refused.json.error.details]).toMatchObject([
      429,
      'resource_exhausted',
      { limit: 'commands', maximum: 4 },
    ]);
    const burst = await Promise.all(
      Array.from({ length: 16 }, () =>
        alice.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv: ['true'] } }),
      ),
    );
    expect(new Set(burst.map(({ status }) => status))).toEqual(new Set([429]));
    const { id: first } = started[0]!.json.command;
    expect(
      (
        await alice.call('POST', `/v1/sandboxes/${id}/commands/${first}/signal`, {
          body: { signal: 'SIGKILL' },
        })
      ).status,
    ).toBe(204);
    await expect.poll(async () => (await start()).status, { timeout: 10_000, interval: 200 }).toBe(201);
  });
});
