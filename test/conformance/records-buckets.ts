import { BucketSchema, BucketSyncSchema, type SandboxId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { projectOf, sandboxRow } from './records-rows.ts';
import type { RecordsWorld } from './records-suite.ts';

export function bucketCases(world: RecordsWorld): void {
  describe('buckets', () => {
    const bucket = (name: string) =>
      BucketSchema.parse({ name, bucket: 'real', accessKeyId: 'AK', secret: 's', createdAtMs: 1 });
    const sync = (name: string, path: string) => BucketSyncSchema.parse({ bucket: name, path });

    it('have one name in a project, and keep the project', async () => {
      const { buckets, projects } = world.records;
      const [one, two] = [await projectOf(world.records, 'one'), await projectOf(world.records, 'two')];
      await buckets.insert(one, bucket('b'));
      await buckets.insert(one, bucket('a'));
      await buckets.insert(two, bucket('a'));
      await expect(buckets.insert(one, bucket('a'))).rejects.toMatchObject({ code: 'already_exists' });
      expect(await buckets.get(one, 'a')).toEqual(bucket('a'));
      expect((await buckets.list(one)).map(({ name }) => name)).toEqual(['a', 'b']);
      expect(await buckets.count(one)).toBe(2);
      await expect(projects.remove(two)).rejects.toMatchObject({ code: 'failed_precondition' });
      await buckets.delete(two, 'a');
      await projects.remove(two);
      expect(await buckets.get(one, 'a')).toEqual(bucket('a'));
    });

    it('have copies in sandboxes, which go with them', async () => {
      const { buckets, sandboxes } = world.records;
      const project = await projectOf(world.records, 'one');
      await buckets.insert(project, bucket('a'));
      const row = sandboxRow(project);
      const id: SandboxId = row.id;
      await sandboxes.insert(row);
      await buckets.attach(id, sync('a', '/z'));
      await buckets.attach(id, sync('a', '/b'));
      expect(await buckets.usedBy(project, 'a')).toEqual([id]);
      const known = { files: 0, pending: false, syncedAtMs: null, error: null };
      expect(await buckets.syncs(id)).toEqual([
        { ...sync('a', '/b'), sandbox: id, ...known },
        { ...sync('a', '/z'), sandbox: id, ...known },
      ]);
      expect(await buckets.base(id, '/b')).toBeNull();
      const at = { sandbox: id, path: '/b' };
      await buckets.update(at, { pending: true, files: 3, syncedAtMs: 7, error: 'why', base: 'kept' });
      await buckets.update(at, { error: null });
      expect((await buckets.syncs(id))[0]).toMatchObject({
        pending: true,
        files: 3,
        syncedAtMs: 7,
        error: null,
      });
      expect(await buckets.base(id, '/b')).toBe('kept');
      expect(await buckets.detach(id, '/z')).toBe(true);
      expect(await buckets.detach(id, '/z')).toBe(false);
      await sandboxes.delete(id);
      expect(await buckets.syncs(id)).toEqual([]);
      expect(await buckets.usedBy(project, 'a')).toEqual([]);
    });
  });
}
