import { openProjects } from './projects.ts';
import { quotaLedger } from './quota-ledger.ts';
import { openReservations } from './reservations.ts';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SandboxId } from '@cay/sdk/protocol';
import { armFaultPoints } from '../../lib/fault-point.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';

let place: Installation;
let backend: MemoryBackend;
let test: TestControl;

beforeEach(async () => {
  place = installation();
  backend = memoryBackend();
  test = await place.open(backend);
});
afterEach(async () => {
  armFaultPoints();
  await test.control.close();
  place.remove();
});

const used = async (key: 'snapshots' | 'snapshotBytes') =>
  (await test.control.projects.usage(test.principal))[key].used;
const take = (id: SandboxId) => test.control.snapshot(test.principal, id, {});

async function filled(bytes: number): Promise<SandboxId> {
  const { sandbox } = await test.control.create(test.principal, asked());
  const { guest } = await test.control.enter(test.principal, sandbox.id);
  await guest.files('user').write('/tmp/fill', Buffer.alloc(bytes));
  return sandbox.id;
}

describe('what snapshots take of a quota', () => {
  it('is the same after a kill at any point of a snapshot or an import', async () => {
    const id = await filled(1000);
    const kept = await take(id);
    const archive = Buffer.concat(
      await Array.fromAsync((await test.control.exportSnapshot(test.principal, kept.id)).data),
    );
    const operations = {
      'control.snapshot.recorded': () => take(id),
      'control.snapshot.taken': () => take(id),
      'control.import.recorded': () =>
        test.control.importSnapshot(
          test.principal,
          (async function* () {
            yield archive;
          })(),
          {},
        ),
      'control.import.taken': () =>
        test.control.importSnapshot(
          test.principal,
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
      await test.kill();
      armFaultPoints();
      test = await place.open(backend);
      expect([await used('snapshots'), await used('snapshotBytes')]).toEqual([1, before]);
      expect(await backend.snapshots()).toHaveLength(1);
    }
  });

  it('is freed with the snapshot, or passes to the next one that may have its files', async () => {
    const id = await filled(5000);
    const [one, two] = [await take(id), await take(id)];
    const all = await used('snapshotBytes');
    await test.control.removeSnapshot(test.principal, one.id);
    expect(await used('snapshotBytes')).toBe(all);
    await test.control.removeSnapshot(test.principal, two.id);
    expect([await used('snapshots'), await used('snapshotBytes')]).toEqual([0, 0]);
  });

  it('stays until the last descendant is removed, in any order', async () => {
    const one = await take(await filled(5000));
    const made = async () => {
      const { sandbox } = await test.control.create(test.principal, asked({ snapshot: one.id }));
      const snapshot = await take(sandbox.id);
      await test.control.remove(test.principal, sandbox.id);
      return snapshot;
    };
    const [first, second, third] = [await made(), await made(), await made()];
    const own = first.bytes!;
    const all = await used('snapshotBytes');
    const remove = async (id: string) => {
      await test.control.removeSnapshot(test.principal, id);
      return used('snapshotBytes');
    };
    expect(await remove(one.id)).toBe(all);
    expect(await remove(first.id)).toBe(all - own);
    await test.kill();
    test = await place.open(backend);
    expect(await remove(third.id)).toBe(all - 2 * own);
    expect(await remove(second.id)).toBe(0);
  });

  it('is refused before anything is made, and leaves nothing', async () => {
    const id = await filled(5000);
    await test.projects.setQuota(test.principal.project, { snapshotBytes: 100 });
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
    expect(await backend.snapshots()).toEqual([]);
    expect(await used('snapshots')).toBe(0);
  });

  it('counts all concurrent writes', async () => {
    const quota = quotaLedger({
      records: test.records,
      reservations: openReservations(),
      projects: openProjects(),
      write: () => {},
    });
    const { project } = test.principal;
    await test.projects.setQuota(project, { uploadBytes: 100 });
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
