import { newId, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import type { RecordsWorld } from './records-suite.ts';
import { projectOf, sandboxRow, snapshotRow, specOf } from './records-rows.ts';

const CANARY = 'canary-of-the-environment';

export function tableCases(world: RecordsWorld): void {
  describe('projects, keys, tokens and secrets', () => {
    it('have one name, a quota that changes in parts, and an order', async () => {
      const { records } = world;
      const one = await records.projects.create('one');
      const two = await records.projects.create('two');
      await expect(records.projects.create('one')).rejects.toMatchObject({ code: 'already_exists' });
      expect(await records.projects.setQuota(one.id, { sandboxes: 3 })).toMatchObject({
        quota: { ...one.quota, sandboxes: 3 },
      });
      expect((await records.projects.get(one.id))!.quota).toEqual({ ...one.quota, sandboxes: 3 });
      expect(await records.projects.byName('two')).toEqual(two);
      await expect(records.projects.setQuota('prj_none', {})).rejects.toMatchObject({ code: 'not_found' });
    });

    it('find a key by its secret, which is stored nowhere, until it is revoked', async () => {
      let nowMs = 1000;
      const records = await world.reopen({ now: () => nowMs });
      const [one, two] = [await projectOf(records, 'one'), await projectOf(records, 'two')];
      const { key, secret } = await records.keys.create({ name: 'k', project: one, role: 'member' });
      expect(await records.keys.find(secret)).toMatchObject({
        id: key.id,
        project: one,
        role: 'member',
        lastUsedAtMs: 1000,
      });
      nowMs += 59_999;
      expect(await records.keys.find(secret)).toMatchObject({ lastUsedAtMs: 1000 });
      nowMs += 1;
      await records.keys.find(secret);
      expect(await records.keys.get(key.id)).toMatchObject({ lastUsedAtMs: 61_000 });
      expect(await records.keys.find(`${secret.slice(0, -1)}x`)).toBeUndefined();
      expect(await records.keys.list(two)).toEqual([]);
      expect(await records.keys.list()).toHaveLength(1);
      expect(await records.keys.revoke(key.id, two)).toBe(false);
      expect(await records.keys.find(secret)).toBeDefined();
      expect(await records.keys.revoke(key.id, one)).toBe(true);
      expect(await records.keys.find(secret)).toBeUndefined();
      expect(await records.keys.revoke(key.id)).toBe(false);
      expect((await world.place.dump()).includes(secret)).toBe(false);
    });

    it('lead a port of the machine to one sandbox, until that is deleted', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const [one, two] = [sandboxRow(project), sandboxRow(project)];
      for (const row of [one, two]) await records.sandboxes.insert(row);
      const given = { protocol: 'tcp' as const, address: '127.0.0.1', port: 80, project };
      await records.hostPorts.insert({ ...given, hostPort: 8080, sandbox: one.id });
      await records.hostPorts.insert({ ...given, hostPort: 8081, sandbox: two.id });
      await expect(
        records.hostPorts.insert({ ...given, hostPort: 8080, sandbox: two.id }),
      ).rejects.toMatchObject({ code: 'conflict' });
      expect(await records.hostPorts.list(one.id)).toEqual([{ ...given, hostPort: 8080, sandbox: one.id }]);
      expect(await records.hostPorts.count(project)).toBe(2);
      await records.hostPorts.insert({ ...given, protocol: 'udp', hostPort: 8081, sandbox: one.id });
      expect(await records.hostPorts.delete(one.id, 'udp', 8081)).toBe(true);
      expect(await records.hostPorts.delete(one.id, 'tcp', 8081)).toBe(false);
      expect(await records.hostPorts.delete(two.id, 'tcp', 8081)).toBe(true);
      await records.sandboxes.delete(one.id);
      expect(await records.hostPorts.list()).toEqual([]);
    });

    it('count revocations of tokens', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const row = sandboxRow(project);
      await records.sandboxes.insert(row);
      expect(await records.tokenEpochs.ofSandbox(row.id)).toBe(0);
      await records.tokenEpochs.revoke(project);
      await records.tokenEpochs.revoke(project);
      expect(await records.tokenEpochs.ofSandbox(row.id)).toBe(2);
      expect(await records.tokenEpochs.ofProject(project)).toBe(2);
      expect(await records.tokenEpochs.ofSandbox('sbx_none')).toBe(0);
      await expect(records.tokenEpochs.revoke('prj_none')).rejects.toMatchObject({ code: 'not_found' });
    });

    it('store secrets of projects sealed, with a version that grows', async () => {
      let nowMs = 1000;
      const records = await world.reopen({ now: () => nowMs });
      const [one, two] = [await projectOf(records, 'one'), await projectOf(records, 'two')];
      const first = await records.storedSecrets.put(one, 'TOKEN', CANARY);
      expect(first).toMatchObject({ name: 'TOKEN', version: 1, bytes: CANARY.length, createdAtMs: 1000 });
      nowMs = 2000;
      const second = await records.storedSecrets.put(one, 'TOKEN', `${CANARY}-2é`);
      expect(second).toEqual({
        ...first,
        version: 2,
        bytes: CANARY.length + 4,
        updatedAtMs: 2000,
      });
      await records.storedSecrets.put(one, 'ALPHA', 'other');
      await records.storedSecrets.put(two, 'TOKEN', 'of another project');
      expect((await records.storedSecrets.list(one)).map(({ name }) => name)).toEqual(['ALPHA', 'TOKEN']);
      expect(await records.storedSecrets.get(two, 'ALPHA')).toBeUndefined();
      expect(await records.storedSecrets.usage(one)).toEqual({ count: 2, bytes: CANARY.length + 9 });
      expect(await records.storedSecrets.usage('prj_none')).toEqual({ count: 0, bytes: 0 });
      const again = await world.reopen();
      expect(await again.storedSecrets.open(one, ['TOKEN', 'NONE'])).toEqual([
        { id: first.id, name: 'TOKEN', version: 2, value: `${CANARY}-2é` },
      ]);
      expect(await again.storedSecrets.open(one, [])).toEqual([]);
      const dump = await world.place.dump();
      expect(dump.includes(first.id)).toBe(true);
      expect(dump.includes(CANARY)).toBe(false);
      await expect(again.projects.remove(one)).rejects.toMatchObject({
        code: 'failed_precondition',
        details: { secrets: 2 },
      });
      expect(await again.storedSecrets.delete(one, 'TOKEN')).toBe(true);
      expect(await again.storedSecrets.delete(one, 'TOKEN')).toBe(false);
      // One of the same name is another secret.
      expect((await again.storedSecrets.put(one, 'TOKEN', 'new')).id).not.toBe(first.id);
    });

    it('seal secrets and environments with the key of the installation', async () => {
      const project = await projectOf(world.records);
      const secret = Buffer.from(await world.records.secrets.get('previews'));
      const row = sandboxRow(project, {
        spec: specOf({ env: { TOKEN: CANARY }, limits: { memoryBytes: 7e7 } }),
      });
      await world.records.sandboxes.insert(row);
      const snapshot = snapshotRow(project, row.id, { spec: row.spec });
      await world.records.snapshots.insert(snapshot);
      const records = await world.reopen();
      expect(Buffer.from(await records.secrets.get('previews'))).toEqual(secret);
      expect(Buffer.from(await records.secrets.get('other'))).not.toEqual(secret);
      expect((await records.sandboxes.get(row.id))!.spec.env).toEqual({ TOKEN: CANARY });
      expect((await records.snapshots.get(snapshot.id))!.spec.env).toEqual({ TOKEN: CANARY });
      expect((await records.sandboxes.promised()).memoryBytes).toBe(7e7);
      const stored = await world.place.dump();
      expect(stored.includes(row.id)).toBe(true);
      expect(stored.includes(CANARY)).toBe(false);
      expect(stored.includes(secret)).toBe(false);
      expect(stored.includes(secret.toString('hex'))).toBe(false);
    });
  });

  describe('sandboxes', () => {
    it('come back as they were recorded', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const row = sandboxRow(project, {
        name: 'box',
        labels: { team: 'ü "quoted" ?', empty: '' },
        ports: [{ port: 80, visibility: 'public' }],
        timeoutMs: 2 ** 40,
        expiresAtMs: 1_700_000_000_000,
        message: 'line\nline',
        operation: { kind: 'resize', limits: { cpus: 0.5 } },
      });
      await records.sandboxes.insert(row);
      expect(await records.sandboxes.get(row.id)).toEqual(row);
      expect(await records.sandboxes.byName(project, 'box')).toEqual(row);
      const changed = await records.sandboxes.update(row.id, {
        state: 'active',
        reason: 'why',
        operation: null,
      });
      expect(changed).toEqual({ ...row, state: 'active', reason: 'why', operation: null });
      expect(await records.sandboxes.update(row.id, {})).toEqual(changed);
      await expect(records.sandboxes.update(row.id, { state: 'creating' })).rejects.toMatchObject({
        code: 'failed_precondition',
      });
      await expect(records.sandboxes.update('sbx_none', {})).rejects.toMatchObject({ code: 'not_found' });
      await records.sandboxes.delete(row.id);
      await records.sandboxes.delete(row.id);
      expect(await records.sandboxes.get(row.id)).toBeUndefined();
    });

    it('have one name in a project, also in a transaction that goes on', async () => {
      const { records } = world;
      const [one, two] = [await projectOf(records, 'one'), await projectOf(records, 'two')];
      await records.sandboxes.insert(sandboxRow(one, { name: 'box' }));
      await records.sandboxes.insert(sandboxRow(two, { name: 'box' }));
      await records.transaction(async (tx) => {
        await expect(tx.sandboxes.insert(sandboxRow(one, { name: 'box' }))).rejects.toMatchObject({
          code: 'already_exists',
        });
        await tx.sandboxes.insert(sandboxRow(one, { name: 'other' }));
      });
      expect(await records.sandboxes.list({ project: one })).toHaveLength(2);
      await expect(records.sandboxes.insert(sandboxRow('prj_none'))).rejects.toThrow();
    });

    it('are listed newest first, in pages that miss and repeat nothing', async () => {
      const { records } = world;
      const project = await projectOf(records);
      await records.transaction(async (tx) => {
        for (let n = 0; n < 25; n++)
          await tx.sandboxes.insert(
            sandboxRow(project, { createdAtMs: Math.floor(n / 5), labels: { n: `${n % 2}`, all: 'yes' } }),
          );
      });
      const seen: SandboxId[] = [];
      let after: { createdAtMs: number; id: string } | undefined;
      for (;;) {
        const page = await records.sandboxes.list({ project, after, limit: 4 });
        if (page.length === 0) break;
        seen.push(...page.map(({ id }) => id));
        after = { createdAtMs: page.at(-1)!.createdAtMs, id: page.at(-1)!.id };
      }
      expect(seen).toHaveLength(25);
      expect(seen).toEqual((await records.sandboxes.ids()).map(({ id }) => id));
      expect(await records.sandboxes.list({ labels: { n: '1', all: 'yes' } })).toHaveLength(12);
      expect(await records.sandboxes.list({ labels: { n: '2' } })).toEqual([]);
      expect(await records.sandboxes.list({ state: 'active' })).toEqual([]);
    });

    it('are summed up, counted and expire', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const spec = (memoryBytes: number, diskBytes: number) =>
        specOf({ limits: { cpus: 1.5, memoryBytes, diskBytes } });
      const add = (changes: Parameters<typeof sandboxRow>[1]) =>
        records.sandboxes.insert(sandboxRow(project, changes));
      expect(await records.sandboxes.promised()).toEqual({ memoryBytes: 0, diskBytes: 0 });
      expect(await records.sandboxes.nextExpiry()).toBeUndefined();
      await add({ state: 'active', spec: spec(2e8, 3e9), timeoutMs: 100, expiresAtMs: 5000 });
      await add({ state: 'paused', pausedAs: 'frozen', spec: spec(4e8, 1e9), expiresAtMs: 3000 });
      await add({ state: 'paused', pausedAs: 'hibernated', spec: spec(8e8, 1e9) });
      await add({ state: 'paused', pausedAs: 'archived', spec: spec(1e9, 7e9) });
      expect(await records.sandboxes.promised()).toEqual({ memoryBytes: 6e8, diskBytes: 5e9 });
      expect(await records.sandboxes.usage(project)).toMatchObject({
        sandboxes: 4,
        cpus: 1.5,
        memoryBytes: 6e8,
        diskBytes: 12e9,
      });
      expect(await records.sandboxes.imageBytes(project)).toBe(8e8);
      expect(await records.sandboxes.counts(project)).toEqual({ active: 1, paused: 3 });
      expect(await records.sandboxes.counts()).toEqual({ active: 1, paused: 3 });
      expect(await records.sandboxes.inMemory()).toHaveLength(2);
      expect(await records.sandboxes.nextExpiry()).toBe(3000);
      expect(await records.sandboxes.expired(3000)).toHaveLength(1);
      await records.sandboxes.shorten(1000, 50);
      expect((await records.sandboxes.expired(1100)).map(({ timeoutMs }) => timeoutMs)).toEqual([100]);
    });

    it('say which have policies, a base, a time of use and a platform', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const base = newId('snap') as SnapshotId;
      const row = sandboxRow(project, { base, spec: specOf({ platform: 'b' }) });
      await records.sandboxes.insert(row);
      expect(await records.sandboxes.hasIdlePolicy()).toBe(false);
      await records.sandboxes.used(
        new Map([
          [row.id, 77],
          ['sbx_none', 1],
        ]),
      );
      await records.sandboxes.update(row.id, {
        idle: { freezeMs: 1, hibernateMs: null, archiveMs: null } as never,
        retention: { turns: 3 } as never,
      });
      expect(await records.sandboxes.hasIdlePolicy()).toBe(true);
      expect(await records.sandboxes.withIdlePolicy()).toMatchObject([{ id: row.id, usedAtMs: 77 }]);
      expect(await records.sandboxes.withRetention()).toHaveLength(1);
      expect(await records.sandboxes.basedOn(base)).toHaveLength(1);
      await records.snapshots.insert(snapshotRow(project, row.id, { spec: specOf({ platform: 'a' }) }));
      expect(await records.platforms.list()).toEqual(['a', 'b']);
    });
  });

  describe('snapshots, templates, forks and builds', () => {
    it('form a tree, and share the files of one that is removed', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const box = sandboxRow(project);
      const root = snapshotRow(project, box.id, { name: 'root', turn: 1, fileBytes: 100 });
      const kids = [1, 2].map((n) =>
        snapshotRow(project, box.id, { parent: root.id, fileBytes: n, createdAtMs: n }),
      );
      await records.sandboxes.insert({ ...box, base: root.id });
      for (const row of [root, ...kids]) await records.snapshots.insert(row);
      await expect(
        records.snapshots.insert(snapshotRow(project, box.id, { name: 'root' })),
      ).rejects.toMatchObject({ code: 'already_exists' });
      await expect(records.snapshots.insert(snapshotRow(project, box.id, { turn: 1 }))).rejects.toMatchObject(
        {
          code: 'already_exists',
        },
      );
      expect(await records.snapshots.byName(project, box.id, 'root')).toEqual(root);
      expect(await records.snapshots.byTurn(project, box.id, 1)).toEqual(root);
      expect(await records.snapshots.children(root.id)).toHaveLength(2);
      expect(await records.snapshots.usage(project)).toEqual({ count: 3, bytes: 103 });
      await records.snapshots.delete(root.id);
      expect(await records.snapshots.usage(project)).toEqual({ count: 2, bytes: 103 });
      expect(await records.sharedFiles.usage(project)).toBe(100);
      expect((await records.sandboxes.get(box.id))!.base).toBeNull();
      expect((await records.snapshots.get(kids[0]!.id))!.parent).toBeNull();
      await records.snapshots.delete(kids[0]!.id);
      expect(await records.sharedFiles.usage(project)).toBe(0);
      expect(await records.snapshots.usage(project)).toEqual({ count: 1, bytes: 102 });
      await records.snapshots.archived(kids[1]!.id, 9);
      expect(await records.snapshots.get(kids[1]!.id)).toMatchObject({
        here: false,
        fileBytes: 9,
        memoryBytes: 0,
      });
      expect(await records.snapshots.list({ project, limit: 1 })).toHaveLength(1);
      await expect(records.snapshots.update('snap_none', { quiet: true })).rejects.toMatchObject({
        code: 'not_found',
      });
    });

    it('know rollbacks in the order they were recorded in, whatever the clock said', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const { id } = sandboxRow(project);
      const rows = [5, 3, 9].map((createdAtMs) =>
        snapshotRow(project, id, { cause: 'rollback', createdAtMs }),
      );
      for (const row of rows) await records.snapshots.insert(row);
      expect((await records.snapshots.beforeRollbacks(id)).map((row) => row.createdAtMs)).toEqual([9, 3, 5]);
      expect(await records.snapshots.all()).toHaveLength(3);
    });

    it('give a snapshot a name that can be moved', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const rows = [0, 1].map(() => snapshotRow(project, newId('sbx')));
      for (const row of rows) await records.snapshots.insert(row);
      const template = { project, name: 'Zeta', snapshot: rows[0]!.id, createdAtMs: 1, network: null };
      await records.templates.save(template, { replace: false });
      await records.templates.save({ ...template, name: 'alpha' }, { replace: false });
      await expect(records.templates.save(template, { replace: false })).rejects.toMatchObject({
        code: 'already_exists',
      });
      const moved = { ...template, snapshot: rows[1]!.id, network: { allow: ['a.example.org'] } };
      await records.templates.save(moved, { replace: true });
      expect(await records.templates.get(project, 'Zeta')).toEqual(moved);
      expect((await world.place.dump()).includes('a.example.org')).toBe(false);
      expect((await records.templates.list(project)).map(({ name }) => name)).toEqual(['Zeta', 'alpha']);
      expect(await records.templates.of(rows[1]!.id)).toHaveLength(1);
      await expect(records.snapshots.delete(rows[1]!.id)).rejects.toThrow();
      expect(await records.templates.delete(project, 'Zeta')).toBe(true);
      expect(await records.templates.delete(project, 'Zeta')).toBe(false);
    });

    it('remember forks under way, and builds with their ends', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const snapshot = newId('snap') as SnapshotId;
      const fork = { id: 'f', project, snapshot, children: [], keyed: true, made: false, createdAtMs: 1 };
      await records.forks.insert(fork);
      const child = newId('sbx');
      await records.forks.update('f', { snapshot, children: [child] });
      expect(await records.forks.unmade()).toEqual([{ ...fork, children: [child] }]);
      await records.forks.made('f');
      expect(await records.forks.unmade()).toEqual([]);
      await records.forks.insert({ ...fork, id: 'g', createdAtMs: 8 * 24 * 3600 * 1000 });
      expect(await records.forks.get('f')).toBeUndefined();
      await records.forks.delete('g');

      const build = {
        id: 'b',
        project,
        template: 't',
        names: ['t', 't:1'],
        limits: { cpus: 2 },
        digest: null,
        state: 'waiting' as const,
        start: null,
        ready: null,
        snapshot: null,
        failure: null,
        createdAtMs: 1,
        endedAtMs: null,
      };
      for (const id of ['b', 'c', 'd']) await records.builds.insert({ ...build, id });
      await records.builds.started('b', { start: 'run', ready: null });
      expect(await records.builds.unfinished(project)).toHaveLength(3);
      const log = [{ atMs: 1, level: 'info' as const, message: 'ok' }];
      await records.builds.ended('b', { snapshot }, log, 5);
      await records.builds.ended('c', { failure: { message: 'no', step: 1, steps: 2 } }, [], 6);
      expect(await records.builds.get('b')).toEqual({
        ...build,
        state: 'ready',
        start: 'run',
        snapshot,
        endedAtMs: 5,
      });
      expect(await records.builds.log('b')).toEqual(log);
      expect(await records.builds.of(snapshot)).toMatchObject({ id: 'b' });
      expect(await records.builds.superseded(project)).toEqual([snapshot]);
      await records.builds.dropped(snapshot);
      await records.builds.prune(project, { keep: 1, keepLogs: 1, waitingBeforeMs: 10 });
      expect(await records.builds.unfinished()).toEqual([]);
    });
  });

  describe('commands and webhooks', () => {
    it('keep commands of a sandbox in order, within bounds, and go with it', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const { id: sandbox, ...rest } = sandboxRow(project);
      await records.sandboxes.insert({ id: sandbox, ...rest });
      const command = (id: string, startedAtMs: number) => ({
        sandbox,
        id,
        argv: ['sh', '-c', id],
        pty: false,
        pid: 7,
        overflow: 'wait' as const,
        key: null,
        startedAtMs,
        outputBytes: 0,
        keptFrom: 0,
      });
      for (const [n, id] of ['main', 'a', 'b', 'c'].entries())
        expect(await records.commands.insert(command(id, n))).toBe(true);
      expect(await records.commands.insert({ ...command('x', 1), sandbox: 'sbx_none' })).toBe(false);
      const end = { exitCode: 0 } as never;
      for (const id of ['main', 'a', 'b', 'c'])
        await records.commands.ended(sandbox, id, end, { pid: 8, outputBytes: 100, keptFrom: 10 }, 9);
      expect(await records.commands.get(sandbox, 'a')).toMatchObject({ pid: 8, outputBytes: 100, end });
      expect(await records.commands.running()).toEqual([]);
      expect(await records.commands.endedBytes(project)).toBe(360);
      const most = { commands: 1, bytes: 1e9 };
      expect(await records.commands.beyond(sandbox, most, { except: 'main' })).toEqual(['a', 'b']);
      expect(await records.commands.beyond(sandbox, { commands: 9, bytes: 1e9 }, { except: 'main' })).toEqual(
        [],
      );
      expect(await records.commands.oldestOf(project, 2, { except: 'main' })).toEqual([
        { sandbox, id: 'a', bytes: 90 },
        { sandbox, id: 'b', bytes: 90 },
      ]);
      // A repeated id replaces the command, its end included.
      await records.commands.insert(command('a', 20));
      expect((await records.commands.list(sandbox)).map(({ id }) => id)).toEqual(['main', 'b', 'c', 'a']);
      expect(await records.commands.running()).toMatchObject([{ id: 'a', outputBytes: 0 }]);
      await records.commands.delete(sandbox, 'a');

      expect(await records.commandKeys.claim(sandbox, 'k', { run: 1 }, 'one')).toEqual({
        id: 'one',
        started: false,
      });
      expect(await records.commandKeys.claim(sandbox, 'k', { run: 1 }, 'two')).toEqual({
        id: 'one',
        started: false,
      });
      await expect(records.commandKeys.claim(sandbox, 'k', { run: 2 }, 'two')).rejects.toMatchObject({
        code: 'conflict',
      });
      expect(await records.commandKeys.find(sandbox, 'k', { run: 1 })).toBeUndefined();
      await records.commandKeys.started(sandbox, 'k');
      await records.commandKeys.release(sandbox, 'k');
      expect(await records.commandKeys.find(sandbox, 'k', { run: 1 })).toBe('one');
      await expect(records.commandKeys.claim('sbx_none', 'k', {}, 'x')).rejects.toMatchObject({
        code: 'not_found',
      });
      await records.sandboxes.delete(sandbox);
      expect(await records.commands.list(sandbox)).toEqual([]);
      expect(await records.commandKeys.find(sandbox, 'k', { run: 1 })).toBeUndefined();
    });

    it('note how far a webhook is', async () => {
      const { records } = world;
      const project = await projectOf(records);
      const webhook = {
        id: 'w',
        project,
        url: 'https://example.invalid/?a=b',
        types: ['sandbox.*'],
        createdAtMs: 1,
        deliveredTo: 0,
        attempts: 0,
        failingSinceMs: null,
        lastError: null,
        disabledAtMs: null,
      };
      await records.webhooks.insert(webhook);
      await records.webhooks.insert({ ...webhook, id: 'v' });
      await records.webhooks.update('w', { deliveredTo: 2 ** 41, lastError: 'a\0b' });
      await records.webhooks.update('none', { attempts: 1 });
      expect(await records.webhooks.get('w')).toMatchObject({ deliveredTo: 2 ** 41, url: webhook.url });
      expect((await records.webhooks.list(project)).map(({ id }) => id)).toEqual(['w', 'v']);
      await records.webhooks.delete('w');
      expect(await records.webhooks.list()).toHaveLength(1);
    });
  });
}
