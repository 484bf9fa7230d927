/**
 * Copies one sync of a sandbox once, down or up: what changed since its base. The base is saved after each
 * copy, also after one that failed halfway, so that the next one begins where this one ended.
 */
import { CayError, type Transfer } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { Files } from '../../guest/guest.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { signalWithin } from '../../lib/http-client.ts';
import type { SyncRow } from '../../records/tables/buckets.ts';
import type { SandboxRow } from '../../records/tables/sandbox-row.ts';
import type { Bucket } from '../../s3/bucket.ts';
import { expectedEtag } from '../../s3/expected-etag.ts';
import type { Core } from '../core.ts';
import { copyDown, copyUp, localTree, type LocalTree } from './copy-files.ts';
import { objectPaths } from './object-paths.ts';
import { TRANSFER_MS, type ProjectBuckets } from './project-buckets.ts';
import { conflictIn, packBase, planDown, planUp, unpackBase, type Base, type Objects } from './sync-plan.ts';

interface Call {
  signal: AbortSignal;
}

export type SyncedSandbox = Pick<SandboxRow, 'id' | 'project' | 'spec'>;

export interface SyncRunner {
  /** Objects become files. Rejects with what failed, which is recorded with the sync. */
  down(row: SyncedSandbox, files: Files, sync: SyncRow): Promise<void>;
  /** Files become objects. */
  up(row: SyncedSandbox, files: Files, sync: SyncRow): Promise<void>;
}

export function syncRunner({
  clock,
  closing,
  quota,
  recordEvent,
  records,
  projectBuckets,
}: Pick<Core, 'clock' | 'closing' | 'quota' | 'recordEvent' | 'records'> & {
  projectBuckets: ProjectBuckets;
}): SyncRunner {
  const { buckets } = records;

  /** Runs one direction of one sync, and records how it ended. */
  async function once(
    row: SyncedSandbox,
    sync: SyncRow,
    direction: 'down' | 'up',
    work: (bucket: Bucket, base: Base, prefix: string, call: Call) => Promise<Transfer>,
  ): Promise<void> {
    const { bucket: name, path, prefix } = sync;
    const data = { bucket: name, path, direction };
    // What it had in common is recorded, and counts for the project.
    await quota.requireRoom(records, row.project, 'uploadBytes', 1);
    const base = await unpackBase(await buckets.base(row.id, path), row.project);
    /** What has been copied is known to be the same, also if another file fails. */
    const save = async (more: { error: string | null; pending?: boolean; syncedAtMs?: number }) =>
      buckets.update(sync, { base: await packBase(base, row.project), files: base.size, ...more });
    try {
      const info = await projectBuckets.find(row.project, name);
      if (direction === 'up' && info.readOnly)
        throw new CayError('failed_precondition', `Bucket "${name}" is read-only`);
      const below = prefix === undefined ? '' : `${prefix}/`;
      const done = await projectBuckets.using(row.project, info, (bucket) =>
        work(bucket, base, below, { signal: signalWithin(TRANSFER_MS, closing) }),
      );
      await faultPoint('control.bucket.copied');
      await save({ error: null, syncedAtMs: clock.now() });
      if (done.files > 0 || done.removed > 0)
        await recordEvent(records, 'bucket.synced', row, undefined, { ...data, ...done });
    } catch (error) {
      const message = systemReason(error).slice(0, 1000);
      await save({ error: message });
      const code = error instanceof CayError ? error.code : 'internal';
      await recordEvent(records, 'bucket.failed', row, undefined, { ...data, code, error: message });
      throw new CayError(code, `Cannot copy between bucket "${name}" and "${path}": ${message}`, {
        cause: error,
        hint: error instanceof CayError ? error.hint : undefined,
        details: { ...(error instanceof CayError ? error.details : {}), bucket: name, path, direction },
      });
    }
  }

  /**
   * A file that both sides have with the same content is none: a server that was killed had copied it.
   * Rejects `conflict` for the others.
   */
  async function settle(
    files: Files,
    directory: string,
    conflicts: readonly string[],
    { objects, local, base, call }: { objects: Objects; local: LocalTree; base: Base; call: Call },
  ): Promise<void> {
    const real: string[] = [];
    for (const path of conflicts) {
      const [object, file] = [objects.get(path), local.files.get(path)];
      const isSame =
        object !== undefined &&
        object.sizeBytes === file?.sizeBytes &&
        object.etag ===
          (await expectedEtag((await files.read(`${directory}/${path}`, call)).data, object.sizeBytes));
      if (isSame)
        base.set(path, { etag: object.etag, sizeBytes: file!.sizeBytes, modifiedAtMs: file!.modifiedAtMs });
      else real.push(path);
    }
    if (real.length > 0) throw conflictIn(real);
  }

  async function down(row: SyncedSandbox, files: Files, sync: SyncRow): Promise<void> {
    await once(row, sync, 'down', async (bucket, base, prefix, call) => {
      const objects = await objectPaths(bucket.list(prefix, call), prefix, row.project);
      const local = await localTree(files, sync.path, call);
      const { copy, remove, conflicts } = planDown(objects, local.files, base, sync);
      await settle(files, sync.path, conflicts, { objects, local, base, call });
      const wanted = copy.map((path) => [path, objects.get(path)!] as const);
      const done = await copyDown(bucket, files, sync.path, wanted, call);
      for (const path of remove) {
        await files.remove(`${sync.path}/${path}`, call);
        base.delete(path);
      }
      // The times of files are those that the guest says they have.
      const now = copy.length === 0 ? local : await localTree(files, sync.path, call);
      for (const [path, { etag }] of wanted) {
        const file = now.files.get(path);
        if (file) base.set(path, { etag, sizeBytes: file.sizeBytes, modifiedAtMs: file.modifiedAtMs });
      }
      return { ...done, removed: remove.length, skipped: local.skipped };
    });
  }

  async function up(row: SyncedSandbox, files: Files, sync: SyncRow): Promise<void> {
    await once(row, sync, 'up', async (bucket, base, prefix, call) => {
      const local = await localTree(files, sync.path, call);
      const objects = await objectPaths(bucket.list(prefix, call), prefix, row.project);
      const { copy: paths, remove, conflicts } = planUp(objects, local.files, base, sync);
      await settle(files, sync.path, conflicts, { objects, local, base, call });
      const done = await copyUp(
        bucket,
        files,
        sync.path,
        { paths, prefix },
        (path, { sizeBytes, modifiedAtMs }, { etag }) => base.set(path, { etag, sizeBytes, modifiedAtMs }),
        call,
      );
      await bucket.remove(
        remove.map((path) => prefix + path),
        call,
      );
      for (const path of remove) base.delete(path);
      return { ...done, removed: remove.length, skipped: local.skipped };
    });
  }

  return { down, up };
}
