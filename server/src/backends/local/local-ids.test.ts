/** Which host ids a sandbox has, from one server to the next. */
import { readdir, readFile, readlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { SandboxId } from '@cay/sdk/protocol';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import type { InstanceFacts } from '../../host/instances/instance.ts';
import { localWorld, type LocalParts, type LocalWorld } from './testing/local-world.ts';

const REGISTRY = '/run/cay/ids';
const STORED = 1_879_048_192;
const reason = whyNoLocal();

describe.skipIf(reason !== undefined)(
  `host ids of sandboxes${reason ? ` (skipped: ${reason})` : ''}`,
  { timeout: 60_000 },
  () => {
    let world: LocalWorld;
    beforeEach(async () => {
      world = await localWorld({ runtime: 'runc' });
    });
    afterEach(async () => {
      await world.destroy();
      expect(await taken()).toEqual({});
    });

    /** As on a disk without idmapped mounts, or before there were ranges. */
    const together = (parts: LocalParts): LocalParts => ({
      ...parts,
      resources: { ...parts.resources, shift: async () => ({ works: false, reason: 'it is too old' }) },
    });

    /** The first id of each instance that has a range. */
    async function taken(): Promise<Record<string, number>> {
      const found: Record<string, number> = {};
      for (const name of await readdir(REGISTRY)) {
        const target = await readlink(join(REGISTRY, name)).catch(() => '');
        if (dirname(target) === join(world.dir, 'instances')) found[basename(target)] = Number(name);
      }
      return found;
    }

    async function factsOf(id: SandboxId): Promise<InstanceFacts> {
      const { instance } = await world.record(id);
      return JSON.parse(
        await readFile(join(world.dir, 'instances', instance!, 'instance.json'), 'utf8'),
      ) as InstanceFacts;
    }

    const rootOf = async (backend: Parameters<LocalWorld['run']>[0], id: SandboxId) =>
      Number((await world.run(backend, id, 'cat /proc/self/uid_map')).split(/\s+/)[1]);

    it('stay when the server is killed, are others after a stop, and are given back', async () => {
      const first = await world.open();
      const id = await world.box(first);
      const root = await rootOf(first, id);
      expect(await taken()).toEqual({ [(await factsOf(id)).name]: root });
      await world.abandon(first);

      const second = await world.open();
      expect(await rootOf(second, id)).toBe(root);
      await second.stop(id, { graceMs: 0 });
      expect(await taken()).toEqual({});
      await second.ensure(id, world.spec);
      expect(await taken()).toEqual({ [(await factsOf(id)).name]: await rootOf(second, id) });
      await second.remove(id);
      expect(await taken()).toEqual({});
    });

    it('are shared where files cannot be shown with others, which the capabilities say', async () => {
      const backend = await world.open({}, together);
      const [one, two] = [await world.box(backend), await world.box(backend)];
      expect([await rootOf(backend, one), await rootOf(backend, two)]).toEqual([STORED, STORED]);
      expect(await backend.capabilities()).toMatchObject({
        abilities: { ownIds: false },
        notes: { ownIds: expect.stringContaining('it is too old') },
      });
      expect(await taken()).toEqual({});
    });

    it('of a sandbox that a server without ranges started stay as they are until it starts again, on the same files', async () => {
      const old = await world.open({}, together);
      const id = await world.box(old);
      await world.note(old, id, 'kept');
      expect(await factsOf(id)).not.toHaveProperty('ids');
      await world.abandon(old);

      const next = await world.open();
      expect(await rootOf(next, id)).toBe(STORED);
      await next.stop(id, { graceMs: 0 });
      await next.ensure(id, world.spec);
      expect(await rootOf(next, id)).toBeGreaterThan(STORED);
      expect(await world.readNote(next, id)).toBe('kept');
      expect(await world.run(next, id, 'stat -c %U /home/user/note')).toBe('user');
    });
  },
);
