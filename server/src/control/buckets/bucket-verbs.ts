import {
  CayError,
  type BucketInfo,
  type SandboxId,
  type SyncState,
  type SyncStates,
} from '@cay/sdk/protocol';
import { signalWithin } from '../../lib/http-client.ts';
import type { SyncRow } from '../../records/tables/buckets.ts';
import { bucketAddress } from '../../s3/bucket-address.ts';
import type { Core } from '../core.ts';
import type { BucketOpening } from '../../bucket-mounts/bucket-mounts.ts';
import type { Waker } from '../pausing/wake.ts';
import { notRunning } from '../sandboxes/not-running.ts';
import type { GuestAccess } from '../sandboxes/guest-access.ts';
import type { Principal } from '../tenants/principal.ts';
import type { BucketVerbs } from './bucket.ts';
import { copyDown, copyUp, localTree } from './copy-files.ts';
import type { MountWrites } from './mount-writes.ts';
import { objectPaths } from './object-paths.ts';
import { TRANSFER_MS, type ProjectBuckets } from './project-buckets.ts';
import type { Syncing } from './syncing.ts';

export function bucketVerbs({
  clock,
  closing,
  guestAccess,
  lookup,
  mounts,
  mountWrites,
  operations,
  projectBuckets,
  quota,
  recordEvent,
  records,
  syncing,
  waker,
}: Pick<Core, 'clock' | 'closing' | 'lookup' | 'operations' | 'quota' | 'recordEvent' | 'records'> & {
  guestAccess: GuestAccess;
  mounts: BucketOpening | undefined;
  mountWrites: MountWrites;
  projectBuckets: ProjectBuckets;
  syncing: Syncing;
  waker: Waker;
}): BucketVerbs {
  quota.counts('buckets', 'buckets', (project, on) => on.buckets.count(project));
  const mountsOf = (project: string) => mounts?.mounts?.used(project);
  quota.counts('bucketMounts', 'mounts', (project) => mountsOf(project)?.mounts ?? 0);
  quota.counts('bucketMountBytes', 'unwritten', (project) => mountsOf(project)?.bytes ?? 0);
  const { buckets } = records;
  const within = (signal: AbortSignal | undefined) => ({
    signal: signalWithin(TRANSFER_MS, signal ? AbortSignal.any([signal, closing]) : closing),
  });

  /** The directory of a running sandbox, and the objects' prefix. */
  async function sides(principal: Principal, ref: string, prefix: string | undefined) {
    const { guest, row } = await guestAccess.enter((await lookup.find(principal, ref)).id);
    return { row, files: guest.files(row.spec.user), prefix: prefix === undefined ? '' : `${prefix}/` };
  }

  const statesOf = async (id: SandboxId): Promise<SyncStates> => ({
    buckets: (await buckets.syncs(id)).map(shown),
    mounts: await mountWrites.states(id),
  });

  return {
    async create({ project, key }, request, { signal } = {}) {
      const info: BucketInfo = { ...request, createdAtMs: clock.now() };
      bucketAddress(info);
      projectBuckets.check(info);
      // Wrong credentials are noticed now, and not when a sandbox is to start.
      await projectBuckets.using(project, info, async (bucket) => {
        for await (const _ of bucket.list('', within(signal))) break;
      });
      await records.transaction(async (tx) => {
        await quota.requireRoom(tx, project, 'buckets', 1);
        await tx.buckets.insert(project, info);
        await tx.events.append({ type: 'bucket.created', project, key, data: { bucket: info.name } });
      });
      return info;
    },
    list: ({ project }) => buckets.list(project),
    get: ({ project }, name) => projectBuckets.find(project, name),
    async remove({ project, key }, name) {
      await records.transaction(async (tx) => {
        if (!(await tx.buckets.get(project, name))) return;
        const users = await tx.buckets.usedBy(project, name);
        if (users.length > 0)
          throw new CayError(
            'failed_precondition',
            `Cannot remove bucket "${name}": sandboxes have copies of it or mount it (${users.slice(0, 5).join(', ')})`,
            {
              details: { sandboxes: users.slice(0, 100) },
              hint: 'remove these sandboxes, or detach it from them',
            },
          );
        await tx.buckets.delete(project, name);
        await tx.events.append({ type: 'bucket.removed', project, key, data: { bucket: name } });
      });
    },
    async objects({ project }, name, { prefix, recursive, limit }, { signal } = {}) {
      const info = await projectBuckets.find(project, name);
      return projectBuckets.using(project, info, async (bucket) => {
        const options = { ...within(signal), ...(!recursive && { delimiter: '/' }) };
        const objects = [];
        for await (const object of bucket.list(prefix, options)) {
          if (objects.length === limit) return { objects, more: true };
          objects.push(object);
        }
        return { objects, more: false };
      });
    },
    async import(principal, name, { sandbox, path, prefix: below }, { signal } = {}) {
      const info = await projectBuckets.find(principal.project, name);
      const { row, files, prefix } = await sides(principal, sandbox, below);
      const call = within(signal);
      const done = await projectBuckets.using(principal.project, info, async (bucket) =>
        copyDown(
          bucket,
          files,
          path,
          [...(await objectPaths(bucket.list(prefix, call), prefix, principal.project))],
          call,
        ),
      );
      await recordEvent(records, 'bucket.imported', row, principal, { bucket: name, path, ...done });
      return { ...done, removed: 0, skipped: 0 };
    },
    async export(principal, name, { sandbox, path, prefix: below }, { signal } = {}) {
      const info = await projectBuckets.find(principal.project, name);
      requireWritable(info);
      const { row, files, prefix } = await sides(principal, sandbox, below);
      const call = within(signal);
      await files.stat(path, call);
      const tree = await localTree(files, path, call);
      const paths = [...tree.files.keys()];
      const done = await projectBuckets.using(principal.project, info, (bucket) =>
        copyUp(bucket, files, path, { paths, prefix }, () => {}, call),
      );
      await recordEvent(records, 'bucket.exported', row, principal, { bucket: name, path, ...done });
      return { ...done, removed: 0, skipped: tree.skipped };
    },
    async sign({ project, key }, name, { key: object, method, expiresSeconds }) {
      const info = await projectBuckets.find(project, name);
      if (method === 'PUT') requireWritable(info);
      const url = await projectBuckets.using(project, info, (bucket) =>
        bucket.presign(method, object, expiresSeconds),
      );
      const data = { bucket: name, object, method, expiresSeconds };
      await records.events.append({ type: 'bucket.signed', project, key, data });
      return { url, expiresAtMs: clock.now() + expiresSeconds * 1000 };
    },
    syncs: async (principal, ref) => statesOf((await lookup.find(principal, ref)).id),
    async sync(principal, ref) {
      const { id } = await lookup.find(principal, ref);
      return operations.enqueue(id, async () => {
        const found = await lookup.reload({ id });
        // The server has what is in mounts, whether the sandbox runs or not.
        await mountWrites.write(found, 'sync');
        if ((await buckets.syncs(id)).length === 0) return statesOf(id);
        const row = await waker.ensureAwake(found);
        if (row.state !== 'active') throw notRunning(row);
        await syncing.up(row);
        return statesOf(id);
      });
    },
    async detach(principal, ref, path) {
      const row = await lookup.find(principal, ref);
      if (!(await buckets.detach(row.id, path)))
        throw new CayError('not_found', `Sandbox "${row.id}" has no copy of a bucket in "${path}"`);
      await recordEvent(records, 'bucket.detached', row, principal, { path });
    },
  };
}

function requireWritable({ name, readOnly }: BucketInfo): void {
  if (readOnly) throw new CayError('failed_precondition', `Bucket "${name}" is read-only`);
}

function shown({ sandbox: _sandbox, ...state }: SyncRow): SyncState {
  return state;
}
