/**
 * What is written inside is in the tree on the host, whichever way it is written and whether or not it is
 * closed.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { destroyInstance, type Instance } from './instance.ts';
import {
  instanceResources,
  request,
  run,
  whyNoInstances,
  type InstanceResources,
} from './testing/instance-resources.ts';

/** Writes in many ways, closes and flushes nothing, and says so. */
const WRITER = `
import mmap, os, time
os.chdir('/root')
def held(name, flags): return os.open(name, flags | os.O_CREAT, 0o644)
os.write(held('plain', os.O_WRONLY), b'x' * 100_000)
os.write(held('append', os.O_WRONLY | os.O_APPEND), b'one')
os.write(held('append', os.O_RDWR | os.O_APPEND), b'two')
both = held('both', os.O_RDWR)
os.write(both, b'hello world')
os.lseek(both, 0, 0); os.read(both, 5)
os.pwrite(both, b'HELLO', 0)
os.pwrite(held('sparse', os.O_WRONLY), b'end', 1_000_000)
mapped = held('mapped', os.O_RDWR)
os.ftruncate(mapped, 8192)
memory = mmap.mmap(mapped, 8192)
memory[4090:4100] = b'0123456789'
os.write(held('old-name', os.O_WRONLY), b'renamed'); os.rename('old-name', 'new-name')
os.chmod('plain', 0o600)
os.write(held('cut', os.O_WRONLY), b'long text'); os.truncate('cut', 4)
held('ready', os.O_WRONLY)
time.sleep(600)
`;

for (const name of ['runc', 'runsc'] as const) {
  const reason = await whyNoInstances(name);
  if (reason) console.warn(`Writes inside ${name} (skipped: ${reason})`);

  describe.skipIf(reason !== undefined)(
    `writes inside ${name}${reason ? ` (skipped: ${reason})` : ''}`,
    { timeout: 60_000 },
    () => {
      let at: InstanceResources;
      let instance: Instance;
      beforeAll(async () => {
        at = await instanceResources(name);
        instance = await at.start();
      }, 60_000);
      afterAll(() => at.end(), 60_000);

      it('are in the tree, and in a copy of it', async () => {
        await instance.link.guest.exec(request('', { shell: undefined, argv: ['python3', '-c', WRITER] }));
        await expect.poll(() => run(instance, 'ls /root/ready'), { timeout: 20_000 }).toBe('/root/ready');
        await at.resources.trees.commit('copy', instance.facts.tree);
        for (const tree of [instance.facts.tree, (await at.plan('copy')).tree]) {
          const root = await at.resources.trees.path(tree);
          const read = async (file: string) => (await readFile(join(root, 'root', file))).toString('latin1');
          expect(await read('plain')).toBe('x'.repeat(100_000));
          expect(await read('append')).toBe('onetwo');
          expect(await read('both')).toBe('HELLO world');
          expect(await read('sparse')).toBe('\0'.repeat(1_000_000) + 'end');
          expect((await read('mapped')).slice(4090, 4100)).toBe('0123456789');
          expect(await read('new-name')).toBe('renamed');
          expect(await read('cut')).toBe('long');
        }
        await destroyInstance(at.resources, instance);
      });
    },
  );
}
