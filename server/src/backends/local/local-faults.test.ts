/** The local backend when one of its steps fails, or when its resources were changed from outside. */
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { until } from '../../../../test/conformance/box.ts';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { FRAME } from '../../guest/frame.ts';
import { ScriptedGuest } from '../../guest/testing/scripted-guest.ts';
import type { Cgroup } from '../../host/cgroups/cgroup.ts';
import type { HostResources } from '../../host/host-resources.ts';
import type { Snapshotter } from '../../host/snapshots/snapshotter.ts';
import { baseTemplate } from '../../host/templates/base.ts';
import type { Template } from '../../host/templates/template.ts';
import { openPolicy } from '../../policy/policy.ts';
import { localBackend, type LocalBackend, type LocalOptions } from './local.ts';
import { openLocalParts, openLocal } from './open-local.ts';
import { failingSave } from './testing/failing-save.ts';

const reason = whyNoLocal();
const spec = SandboxSpecSchema.parse({ runtime: 'runc' });
const withProcess = openPolicy({ runtimes: ['process', 'runc'], allowProcess: true });
/** With a disk of a size that no tree is kept ready for. */
const small = SandboxSpecSchema.parse({ runtime: 'runc', limits: { diskBytes: 1024 ** 3 } });

describe.skipIf(reason !== undefined)(
  `faults of the local backend${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let dir: string;
    let errors: unknown[];
    let opened: LocalBackend[];

    beforeEach(async () => {
      dir = await mkdtemp('/tmp/cay-lf-');
      await chmod(dir, 0o711);
      errors = [];
      opened = [];
    });
    afterEach(async () => {
      for (const backend of opened) await backend.close().catch(() => {});
      const backend = await openLocal({ dir });
      await backend.destroy();
      await rm(dir, { recursive: true, force: true });
    });

    async function open(
      change: (parts: LocalParts) => LocalParts = (parts) => parts,
      options: Partial<LocalOptions> = {},
    ): Promise<LocalBackend> {
      const parts = change(await openLocalParts({ dir, policy: options.policy }));
      const backend = await localBackend({
        ...parts,
        runtime: 'runc',
        onError: (error) => errors.push(error),
        ...options,
      });
      opened.push(backend);
      return backend;
    }

    const instances = async () => (await readdir(join(dir, 'instances'))).toSorted();

    it('an instance of the pool does not leak when the disk is too full to record who has it', async () => {
      let full = false;
      const backend = await open((parts) => ({ ...parts, records: failingSave(parts.records, () => full) }), {
        poolSize: 1,
      });
      await backend.warm();
      full = true;
      const id = newId('sbx');
      await expect(backend.ensure(id, spec)).rejects.toMatchObject({ code: 'resource_exhausted' });
      full = false;
      expect((await backend.observe(id)).phase).toBe('absent');
      await backend.warm();
      expect(await instances()).toHaveLength(1);
    });

    it('a start that cannot be recorded as done is undone', async () => {
      let saves = 0;
      const backend = await open((parts) => ({
        ...parts,
        records: failingSave(parts.records, () => ++saves === 2),
      }));
      const id = newId('sbx');
      await expect(backend.ensure(id, spec)).rejects.toMatchObject({ code: 'resource_exhausted' });
      expect((await backend.observe(id)).phase).toBe('absent');
      expect(await instances()).toEqual([]);
      expect((await backend.ensure(id, spec)).phase).toBe('ready');
    });

    it('a sandbox can be removed when the disk is full', async () => {
      let full = false;
      const backend = await open((parts) => ({ ...parts, records: failingSave(parts.records, () => full) }));
      const id = newId('sbx');
      await backend.ensure(id, spec);
      full = true;
      await backend.remove(id);
      expect((await backend.observe(id)).phase).toBe('absent');
      expect(await instances()).toEqual([]);
    });

    it('a warm instance that cannot run a command is taken away', async () => {
      const base = baseTemplate();
      // Nothing of the host is shown in it: there is no program at all.
      const bare: Template = {
        ...base,
        prepare: async (trees, ids) => ({ ...(await base.prepare(trees, ids)), binds: [] }),
      };
      await open((parts) => ({ ...parts, templates: new Map([['base', bare]]) }), { poolSize: 1 });
      await until('the pool has tried', () => errors.length > 0, 10_000);
      expect(await instances()).toEqual([]);
    });

    it('a template that was removed from outside is made again', async () => {
      let trees: Snapshotter | undefined;
      const backend = await open((parts) => {
        trees = parts.resources.trees;
        return parts;
      });
      const id = newId('sbx');
      await backend.ensure(id, small);
      await backend.remove(id);
      for (const { name, kind } of await trees!.list()) if (kind === 'committed') await trees!.remove(name);
      expect((await backend.ensure(id, small)).phase).toBe('ready');
    });

    it('stop() that failed halfway takes away the rest when it is repeated', async () => {
      let failing = true;
      const backend = await open((parts) => ({
        ...parts,
        resources: withCgroup(parts.resources, (group) => ({
          ...group,
          async remove() {
            if (failing) throw new Error('busy');
            await group.remove();
          },
        })),
      }));
      const id = newId('sbx');
      await backend.ensure(id, spec);
      await expect(backend.stop(id, { graceMs: 0 })).rejects.toThrow('busy');
      failing = false;
      expect((await backend.stop(id, { graceMs: 0 })).phase).toBe('stopped');
      expect(await instances()).toEqual([]);
      expect((await backend.ensure(id, spec)).phase).toBe('ready');
      expect(await instances()).toHaveLength(1);
    });

    it('stop() lets what is frozen end in order, also when another server froze it', async () => {
      const first = await open();
      const id = newId('sbx');
      await first.ensure(id, spec);
      const shell =
        'trap "echo ended > /home/user/ended; exit" TERM; echo ready; while :; do sleep 0.1; done';
      const handle = await (
        await first.connect(id)
      ).exec({ id: 'trap', shell, env: {}, workdir: '/', user: 'user' });
      for await (const _ of handle.output) break;
      await first.freeze(id);
      await first.close();
      const second = await open();
      await second.stop(id, { graceMs: 1000 });
      await second.ensure(id, spec);
      expect((await (await second.connect(id)).files('user').stat('/home/user/ended')).type).toBe('file');
    });

    it('ensure() after remove() that failed halfway starts from nothing', async () => {
      let failing = true;
      const backend = await open((parts) => ({
        ...parts,
        resources: {
          ...parts.resources,
          trees: {
            ...parts.resources.trees,
            async remove(name: string) {
              if (failing && name.startsWith('i-')) throw new Error('busy');
              await parts.resources.trees.remove(name);
            },
          },
        },
      }));
      const id = newId('sbx');
      await backend.ensure(id, spec);
      await (await backend.connect(id)).files('user').write('/home/user/old', Buffer.from('old'));
      await expect(backend.remove(id)).rejects.toThrow('busy');
      failing = false;
      expect(await backend.ensure(id, spec)).toMatchObject({ phase: 'ready', incarnation: 1 });
      const files = (await backend.connect(id)).files('user');
      await expect(files.stat('/home/user/old')).rejects.toMatchObject({ code: 'not_found' });
    });

    it('resize() that fails halfway changes nothing', async () => {
      const backend = await open((parts) => ({
        ...parts,
        resources: {
          ...parts.resources,
          trees: {
            ...parts.resources.trees,
            async setQuota(name: string, bytes: number | null) {
              if (bytes === 64 * 1024 ** 2) throw new Error('no quota');
              await parts.resources.trees.setQuota(name, bytes);
            },
          },
        },
      }));
      const id = newId('sbx');
      await backend.ensure(id, spec);
      await expect(backend.resize(id, { pids: 100, diskBytes: 64 * 1024 ** 2 })).rejects.toThrow('no quota');
      expect((await cgroupFile(id, 'pids.max')).trim()).toBe(String(spec.limits.pids));
    });

    it('limits that were being changed when the server died are those of the record again', async () => {
      const first = await open();
      const id = newId('sbx');
      await first.ensure(id, spec);
      await first.close();
      await writeFile(await cgroupPath(id, 'pids.max'), '100');
      const second = await open();
      expect((await second.observe(id)).phase).toBe('ready');
      expect((await cgroupFile(id, 'pids.max')).trim()).toBe(String(spec.limits.pids));
    });

    it('a guest that ends at once fails the start at once', async () => {
      const backend = await open((parts) => ({
        ...parts,
        resources: { ...parts.resources, guestBinary: '/bin/false' },
      }));
      await expect(backend.ensure(newId('sbx'), spec)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await instances()).toEqual([]);
    }, 10_000);

    it('a guest that hangs up all the time is looked at by one at a time', async () => {
      let looking = 0;
      let most = 0;
      const backend = await open((parts) => ({
        ...parts,
        resources: withCgroup(parts.resources, (group) => ({
          ...group,
          async processes() {
            most = Math.max(most, ++looking);
            await new Promise((resolve) => setTimeout(resolve, 100));
            looking--;
            return group.processes();
          },
        })),
      }));
      const id = newId('sbx');
      await backend.ensure(id, spec);
      const { instance } = await recordOf(id);
      const socket = join(dir, 'instances', instance!, 'run', 'guest.sock');
      for (let round = 0; round < 20; round++) await dialAndHangUp(socket);
      expect(most).toBe(1);
    });

    it('a pooled instance that a sandbox had is never handed to another, whatever became of the record', async () => {
      const first = await open(undefined, { poolSize: 1 });
      await first.warm();
      const id = newId('sbx');
      await first.ensure(id, spec);
      const { instance } = await recordOf(id);
      await (await first.connect(id)).files('user').write('/home/user/secret', Buffer.from('secret'));
      await first.close();
      await rename(join(dir, 'sandboxes', `${id}.json`), join(dir, 'moved-away.json'));
      await open(undefined, { poolSize: 4 });
      expect(await instances()).not.toContain(instance);
    });

    it('a sandbox that cannot be adopted does not keep others from being adopted', async () => {
      const first = await open();
      const [broken, whole] = [newId('sbx'), newId('sbx')];
      await first.ensure(broken, spec);
      await first.ensure(whole, spec);
      const { instance } = await recordOf(broken);
      await first.close();
      await rm(join(dir, 'instances', instance!, 'run'), { recursive: true });
      const second = await open();
      expect((await second.observe(whole)).phase).toBe('ready');
      expect((await second.observe(broken)).phase).toBe('failed');
      expect(await instances()).toHaveLength(1);
      expect((await second.ensure(broken, spec)).phase).toBe('ready');
    });

    it('a sandbox that cannot be looked at when the server opens is not ended for it', async () => {
      const first = await open();
      const id = newId('sbx');
      await first.ensure(id, spec);
      await first.close();
      // Looking at its processes fails as long as this server opens.
      let blind = true;
      const blinded = (cgroup: Cgroup): Cgroup => ({
        ...cgroup,
        processes: () => (blind ? Promise.reject(new Error('too many open files')) : cgroup.processes()),
      });
      const second = await open(({ resources, ...parts }) => ({
        ...parts,
        resources: {
          ...resources,
          cgroups: { ...resources.cgroups, group: (name) => blinded(resources.cgroups.group(name)) },
        },
      }));
      blind = false;
      expect(errors).toHaveLength(1);
      await second.close();
      const third = await open();
      expect(await third.observe(id)).toMatchObject({ phase: 'ready', incarnation: 1 });
      expect(await (await third.connect(id)).commands()).toEqual([]);
      await third.remove(id);
    });

    it('what does not belong into its directories does not keep it from opening', async () => {
      const first = await open();
      const id = newId('sbx');
      await first.ensure(id, spec);
      const { instance } = await recordOf(id);
      await first.close();
      await writeFile(join(dir, 'instances', 'stray-file'), 'x');
      await mkdir(join(dir, 'instances', 'lost+found'));
      await mkdir(join(dir, 'sandboxes', 'lost+found'));
      await writeFile(join(dir, 'sandboxes', `${id}.json.77-1.tmp`), '{"id":');
      await writeFile(join(dir, 'instances', instance!, 'instance.json'), '{ not json');
      const second = await open();
      expect((await second.observe(id)).phase).toBe('failed');
      expect((await second.ensure(id, spec)).phase).toBe('ready');
      expect(existsSync(join(dir, 'sandboxes', `${id}.json.77-1.tmp`))).toBe(false);
    });

    it('a record that is not JSON is named, with what to do about it', async () => {
      await (await open()).close();
      const path = join(dir, 'sandboxes', `${newId('sbx')}.json`);
      await writeFile(path, '');
      await expect(open()).rejects.toMatchObject({
        code: 'internal',
        message: expect.stringContaining(path),
        hint: expect.any(String),
      });
      await rm(path);
    });

    it('a directory that a server has is refused to a second one', async () => {
      const first = await openLocal({ dir, runtime: 'runc' });
      opened.push(first);
      await expect(openLocal({ dir, runtime: 'runc' })).rejects.toMatchObject({
        code: 'failed_precondition',
      });
      await first.close();
      opened.push(await openLocal({ dir, runtime: 'runc' }));
    });

    it('ensure() after close() starts nothing', async () => {
      const backend = await open();
      await backend.close();
      await expect(backend.ensure(newId('sbx'), spec)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await instances()).toEqual([]);
    });

    it('destroy() leaves neither a cgroup nor a directory', async () => {
      const backend = await openLocal({ dir, runtime: 'runc', poolSize: 1 });
      await backend.ensure(newId('sbx'), spec);
      await backend.warm();
      const { name } = JSON.parse(await readFile(join(dir, 'installation.json'), 'utf8')) as { name: string };
      await backend.destroy();
      expect(await cgroupsOf(name)).toEqual([]);
      expect(await readdir(dir)).toEqual([]);
    });

    it('without isolation, a sandbox whose guest alone was killed has failed', async () => {
      const backend = await open(undefined, { runtime: 'process', policy: withProcess });
      const id = newId('sbx');
      await backend.ensure(id, SandboxSpecSchema.parse({ runtime: 'process' }));
      const guest = await backend.connect(id);
      await guest.exec({ id: 'long', argv: ['sleep', '60'], env: {}, workdir: '/', user: 'user' });
      const { instance } = await recordOf(id);
      const { pid } = JSON.parse(
        await readFile(join(dir, 'runtimes', 'process', `${instance}.json`), 'utf8'),
      ) as { pid: number };
      process.kill(pid, 'SIGKILL');
      await until('it is seen as failed', async () => (await backend.observe(id)).phase === 'failed', 3000);
    });

    async function recordOf(id: SandboxId): Promise<{ instance?: string }> {
      return JSON.parse(await readFile(join(dir, 'sandboxes', `${id}.json`), 'utf8')) as {
        instance?: string;
      };
    }

    async function cgroupPath(id: SandboxId, file: string): Promise<string> {
      const { instance } = await recordOf(id);
      const { name } = JSON.parse(await readFile(join(dir, 'installation.json'), 'utf8')) as { name: string };
      const path = ['', 'pids']
        .map((root) => join('/sys/fs/cgroup', root, `cay-${name}`, instance!, file))
        .find(existsSync);
      return path!;
    }

    async function cgroupFile(id: SandboxId, file: string): Promise<string> {
      return readFile(await cgroupPath(id, file), 'utf8');
    }
  },
);

function withCgroup(resources: HostResources, change: (group: Cgroup) => Cgroup): HostResources {
  return {
    ...resources,
    cgroups: { ...resources.cgroups, group: (name) => change(resources.cgroups.group(name)) },
  };
}

/** As something inside that took the guest's place would: it says hello, is believed, and goes. */
async function dialAndHangUp(path: string): Promise<void> {
  const socket = connect(path);
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const guest = new ScriptedGuest(socket);
  guest.hello();
  // Who dials often is refused for a while, before or after the connection is made.
  await Promise.race([guest.next(FRAME.hello), closed]);
  socket.destroy();
  await closed;
}

type LocalParts = Awaited<ReturnType<typeof openLocalParts>>;

async function cgroupsOf(installation: string): Promise<string[]> {
  const roots = [
    '/sys/fs/cgroup',
    ...(await readdir('/sys/fs/cgroup')).map((name) => join('/sys/fs/cgroup', name)),
  ];
  return roots.map((root) => join(root, `cay-${installation}`)).filter(existsSync);
}
