import { openProjects } from './projects.ts';
import { quotaLedger } from './quota-ledger.ts';
import { openReservations } from './reservations.ts';
import { afterEach, describe, expect, it } from 'vitest';
import type { SandboxId } from '@cay/sdk/protocol';
import { armFaultPoints } from '../../lib/fault-point.ts';
import { useControl } from '../testing/control-fixture.ts';

const fixture = useControl();
afterEach(() => armFaultPoints());

const used = async (key: 'snapshots' | 'snapshotBytes') =>
  (await fixture.control.projects.usage(fixture.me()))[key].used;
const take = (id: SandboxId) => fixture.control.snapshot(fixture.me(), id, {});

async function filled(bytes: number): Promise<SandboxId> {
  const id = await fixture.create();
  const { guest } = await fixture.control.enter(fixture.me(), id);
  await guest.files('user').write('/tmp/fill', Buffer.alloc(bytes));
  return id;
}

describe('what snapshots take of a quota', () => {
  it('is the same after a kill at any point of a snapshot or an import', async () => {
    const id = await filled(1000);
    const kept = await take(id);
    const archive = Buffer.concat(
      await Array.fromAsync((await fixture.control.exportSnapshot(fixture.me(), kept.id)).data),
    );
    const operations = {
      'control.snapshot.recorded': () => take(id),
      'control.snapshot.taken': () => take(id),
      'control.import.recorded': () =>
        fixture.control.importSnapshot(
          fixture.me(),
          (async function* () {
            yield archive;
          })(),
          {},
        ),
      'control.import.taken': () =>
        fixture.control.importSnapshot(
          fixture.me(),
          (async function* () {
            yield archive;
          })(),
          {},
        ),
    };
    const before = await used('snapshotBytes');
    for (const [point, operation] of Object.entries(operations)) {
      const reached = Promise.withResolvers<void>();
      armFaultPoints({
        [point]: () => {
          reached.resolve();
          return new Promise(() => {});
        },
      });
      void operation().catch(reached.reject);
      await reached.promise;
      await fixture.opened.kill();
      armFaultPoints();
      await fixture.reopen();
      expect([await used('snapshots'), await used('snapshotBytes')]).toEqual([1, before]);
      expect(await fixture.memory.snapshots()).toHaveLength(1);
    }
  });

  it('is freed with the snapshot, or passes to the next one that may have its files', async () => {
    const id = await filled(5000);
    const [one, two] = [await take(id), await take(id)];
    const all = await used('snapshotBytes');
    await fixture.control.removeSnapshot(fixture.me(), one.id);
    expect(await used('snapshotBytes')).toBe(all);
    await fixture.control.removeSnapshot(fixture.me(), two.id);
    expect([await used('snapshots'), await used('snapshotBytes')]).toEqual([0, 0]);
  });

  it('stays until the last descendant is removed, in any order', async () => {
    const one = await take(await filled(5000));
    const made = async () => {
      const id = await fixture.create({ snapshot: one.id });
      const snapshot = await take(id);
      await fixture.control.remove(fixture.me(), id);
      return snapshot;
    };
    const [first, second, third] = [await made(), await made(), await made()];
    const own = first.bytes!;
    const all = await used('snapshotBytes');
    const remove = async (id: string) => {
      await fixture.control.removeSnapshot(fixture.me(), id);
      return used('snapshotBytes');
    };
    expect(await remove(one.id)).toBe(all);
    expect(await remove(first.id)).toBe(all - own);
    await fixture.opened.kill();
    await fixture.reopen();
    expect(await remove(third.id)).toBe(all - 2 * own);
    expect(await remove(second.id)).toBe(0);
  });

  it('is refused before anything is made, and leaves nothing', async () => {
    const id = await filled(5000);
    await fixture.opened.projects.setQuota(fixture.me().project, { snapshotBytes: 100 });
    await expect(take(id)).rejects.toMatchObject({
      code: 'resource_exhausted',
      details: {
        quota: 'snapshotBytes',
        limit: 100,
        used: 0,
        asked: 5000,
        usedBy: { snapshots: 0, hibernated: 0 },
      },
    });
    expect(await fixture.memory.snapshots()).toEqual([]);
    expect(await used('snapshots')).toBe(0);
  });

  it('counts all concurrent writes', async () => {
    const quota = quotaLedger({
      records: fixture.opened.records,
      reservations: openReservations(),
      projects: openProjects(),
      write: () => {},
    });
    const { project } = fixture.me();
    await fixture.opened.projects.setQuota(project, { uploadBytes: 100 });
    using one = quota.begin(project, 'uploads', ['uploadBytes']);
    await one.add(60);
    {
      using other = quota.begin(project, 'imports', ['uploadBytes']);
      await expect(other.add(41)).rejects.toMatchObject({
        details: { used: 60, asked: 41, usedBy: { uploads: 60, imports: 0 } },
      });
      await other.add(40);
      await expect(one.add(1)).rejects.toMatchObject({ code: 'resource_exhausted' });
    }
    await one.add(40);
  });
});
