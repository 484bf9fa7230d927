import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { whyLater } from '../support/tier.ts';
import { clear, exists, MIB, names, rejects, type Trees, type World, write } from './snapshotter-world.ts';

/** What is left after the server ends: closed, killed between any two steps, or with its machine. */
export function survivesEnds(world: World): void {
  describe('after an end', () => {
    it('finds all trees again when it was closed', async () => {
      await writeFile(join(await world.trees.prepare('a', { parent: 'base' }), 'mine'), 'mine');
      const before = await world.trees.list();
      await world.trees.close();
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await world.trees.list()).toEqual(before);
      expect(await readFile(join(await world.trees.path('a'), 'mine'), 'utf8')).toBe('mine');
    });

    it('finds all trees again when it was killed, and doubles no mount', async () => {
      await world.trees.prepare('a', { parent: 'base' });
      const before = await mounts(world.dir);
      const list = await world.trees.list();
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await world.trees.list()).toEqual(list);
      await world.trees.path('a');
      expect(await mounts(world.dir)).toBeLessThanOrEqual(before);
    });

    it('takes away the views of committed trees that a killed server left', async () => {
      world.trees = await world.harness.open({ dir: world.dir });
      const before = await mounts(world.dir);
      await world.trees.committedPath('base');
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await mounts(world.dir)).toBe(before);
    });

    it('mounts again after a restart of the machine', async () => {
      const path = await world.trees.prepare('a', { parent: 'base' });
      await writeFile(join(path, 'mine'), 'mine');
      await world.harness.reboot(world.dir);
      expect(await exists(join(path, 'mine'))).toBe(false);
      world.trees = await world.harness.open({ dir: world.dir });
      expect(await world.trees.path('a')).toBe(path);
      expect(await readFile(join(path, 'mine'), 'utf8')).toBe('mine');
      expect(await readFile(join(path, 'file'), 'utf8')).toBe('content');
    });

    it('still refuses to remove a tree that others descend from', async () => {
      await world.trees.prepare('a', { parent: 'base' });
      world.trees = await world.harness.open({ dir: world.dir });
      await rejects(world.trees.remove('base'), 'failed_precondition');
    });
  });

  // Those of a driver that is slow take long; it shares their code with another.
  const later = world.harness.slow ? whyLater() : undefined;
  describe.skipIf(later !== undefined)(`a crash${later ? ` (skipped: ${later})` : ''}`, () => {
    const verbs: Record<string, (at: Trees) => Promise<unknown>> = {
      prepare: (at) =>
        at.prepare('a', { parent: 'base', ...(at.capabilities.quota && { quotaBytes: 3 * MIB }) }),
      'prepare of an empty tree': (at) => at.prepare('a'),
      commit: (at) => at.commit('c', 'seed'),
      setQuota: (at) => at.setQuota('seed', at.capabilities.quota ? 3 * MIB : null),
      remove: (at) => at.remove('victim'),
      'remove of a commit': (at) => at.remove('kept'),
      'remove of a tree whose commit stays': (at) => at.remove('victim'),
      committedPath: (at) => at.committedPath('base'),
    };
    /** How many places there are at least to stop at, and the end. */
    const STEPS: Record<string, number> = {
      prepare: 3,
      'prepare of an empty tree': 3,
      commit: 3,
      committedPath: 1,
    };

    it.each(Object.keys(verbs))(
      'between any two steps of %s is mended by opening and repeating',
      async (title) => {
        const verb = verbs[title]!;
        let total = 1;
        for (let stopAt = 0; stopAt < total; stopAt++) {
          await world.trees.prepare('victim', { parent: 'base' });
          if (title.includes('of a')) await world.trees.commit('kept', 'victim');
          if (title === 'remove of a commit') await world.trees.remove('victim');
          total = Math.max(total, await crash(verb, stopAt));
          world.trees = await world.harness.open({ dir: world.dir });
          const left = await names(world.trees);
          expect(['base', 'seed']).toEqual(left.filter((tree) => tree === 'base' || tree === 'seed'));
          // Whatever is listed is whole.
          for (const { name: tree, kind } of await world.trees.list()) {
            if (kind === 'active') await stat(await world.trees.path(tree));
            else if (tree === 'kept') await stat(await world.trees.committedPath(tree));
            else await stat(await world.trees.prepare(`from-${tree}`, { parent: tree }));
          }
          await verb(world.trees);
          await verb(world.trees);
          if (world.trees.capabilities.quota && title === 'prepare') {
            await expect(write(join(await world.trees.path('a'), 'big'), 5 * MIB)).rejects.toThrow(
              /EDQUOT|-122/,
            );
          }
          if (title === 'setQuota') await world.trees.setQuota('seed', null);
          if (title.startsWith('remove'))
            expect(await names(world.trees)).not.toContain(
              title === 'remove of a commit' ? 'kept' : 'victim',
            );
          if (title.endsWith('stays')) await stat(await world.trees.prepare('again', { parent: 'kept' }));
          await clear(world.trees, ['seed', 'base']);
          expect(await names(world.trees)).toEqual(['base', 'seed']);
        }
        expect(total).toBeGreaterThanOrEqual(STEPS[title] ?? 2);
      },
      120_000,
    );

    /**
     * Runs the verb with a server that stops for ever at the given step. Resolves how many steps it saw,
     * counting all when it got through.
     */
    async function crash(verb: (at: Trees) => Promise<unknown>, stopAt: number): Promise<number> {
      let steps = 0;
      let armed = false;
      let stopped = (): void => {};
      const stop = new Promise<void>((resolve) => {
        stopped = resolve;
      });
      const doomed = await world.harness.open({
        dir: world.dir,
        onStep: () => {
          if (!armed || steps++ < stopAt) return;
          stopped();
          return new Promise<void>(() => {});
        },
      });
      armed = true;
      await Promise.race([verb(doomed), stop]);
      return steps + (steps > stopAt ? 1 : 0);
    }
  });
}

/** How many mounts there are in the folder. */
async function mounts(dir: string): Promise<number> {
  return (await readFile('/proc/self/mountinfo', 'utf8')).split('\n').filter((line) => line.includes(dir))
    .length;
}
