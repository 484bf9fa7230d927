import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isCayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { exec, MIB, names, type Trees, type World, write } from './snapshotter-world.ts';

/** What happens when the platform is full. */
export function staysUsable(world: World): void {
  describe('a platform without room', () => {
    it('fails or succeeds by the verb, leaves nothing half done, and serves again when there is room', async () => {
      const dir = `${world.dir}-small`;
      const { trees, end } = await world.harness.openSmall(dir);
      try {
        await writeFile(join(await trees.prepare('seed'), 'kept'), 'kept');
        await trees.commit('base', 'seed');
        const a = await trees.prepare('a', { parent: 'base' });
        await write(join(a, 'first'), 30 * MIB);
        await fillUp(join(a, 'filler'));
        const before = await names(trees);
        await tried(trees, 'b', trees.prepare('b', { parent: 'base' }));
        await tried(trees, 'c', trees.commit('c', 'a'));
        await tried(trees, 'd', trees.prepare('d'));
        for (const name of ['b', 'c', 'd']) await trees.remove(name);
        expect(await names(trees)).toEqual(before);
        await trees.remove('a');
        const path = await trees.prepare('e', { parent: 'base' });
        expect(await readFile(join(path, 'kept'), 'utf8')).toBe('kept');
        const room = async () => {
          // A btrfs then cleans up at once rather than within half a minute.
          await exec('btrfs', ['filesystem', 'sync', path]).catch(() => {});
          return roomFor(join(path, 'new'), 20 * MIB);
        };
        await expect.poll(room, { timeout: 60_000, interval: 500 }).toBe(true);
        await trees.commit('f', 'e');
        expect((await stat(join(await trees.committedPath('f'), 'new'))).size).toBe(20 * MIB);
      } finally {
        await trees.destroy();
        await end();
        await rm(dir, { recursive: true, force: true });
      }
    }, 180_000);
  });

  /** Settles, and only for want of room may it have failed; then nothing is there. */
  async function tried(trees: Trees, name: string, verb: Promise<unknown>): Promise<void> {
    const error = await verb.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    if (error !== undefined) expect(isCayError(error) ? error.code : error).toBe('resource_exhausted');
    expect((await names(trees)).includes(name)).toBe(error === undefined);
  }
}

async function fillUp(path: string): Promise<void> {
  for (let round = 0; round < 100; round++) if (!(await roomFor(`${path}-${round}`, 16 * MIB))) return;
  throw new Error('The platform has more room than it should');
}

async function roomFor(path: string, bytes: number): Promise<boolean> {
  return write(path, bytes).then(
    () => true,
    (error: Error) => {
      expect(error.message).toMatch(/ENOSPC|EDQUOT|-122/);
      return false;
    },
  );
}
