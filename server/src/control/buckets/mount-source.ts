import { CayError, isCayError } from '@cay/sdk/protocol';
import { systemReason } from '@cay/sdk/system-error';
import type { BucketSource, MountBounds } from '../../bucket-mounts/bucket-mounts.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { Core } from '../core.ts';
import { requireRoom } from '../tenants/quota.ts';
import type { ProjectBuckets } from './project-buckets.ts';

/** Opens buckets for the mounts of sandboxes, and records what could not be written. */
export function mountSource({
  onError,
  projectBuckets,
  projects,
  recordEvent,
  records,
}: Pick<Core, 'onError' | 'projects' | 'recordEvent' | 'records'> & {
  projectBuckets: ProjectBuckets;
}): BucketSource {
  /** As the quota is now: one that changes counts for the mounts that begin later. */
  async function boundsOf(project: string): Promise<MountBounds> {
    const quota = (await projects.get(records, project))?.effectiveQuota;
    const require = (key: 'bucketMounts' | 'bucketMountBytes', name: string, used: number, asked: number) => {
      if (quota) requireRoom(quota, key, { used, by: { [name]: used } }, asked);
    };
    return {
      project,
      requireMount: (open) => require('bucketMounts', 'mounts', open, 1),
      requireBytes: (used, asked) => require('bucketMountBytes', 'unwritten', used, asked),
    };
  }

  return {
    async open({ sandbox, project: known, bucket }) {
      const project = known ?? (await records.sandboxes.get(sandbox))?.project;
      if (project === undefined) throw new CayError('not_found', `Sandbox "${sandbox}" does not exist`);
      const info = await projectBuckets.find(project, bucket);
      const bounds = await boundsOf(project);
      return { bucket: await projectBuckets.open(project, info), readOnly: info.readOnly, bounds };
    },
    failed({ sandbox, project, bucket, path }, { key, error, lost }) {
      const message = (error instanceof Error ? systemReason(error) : 'it was not tried').slice(0, 1000);
      const code = isCayError(error) ? error.code : 'internal';
      const data = { bucket, path, direction: 'up', key, lost, code, error: message };
      const record = async () => {
        const row = (await records.sandboxes.get(sandbox)) ?? (project && { id: sandbox, project });
        if (row) await recordEvent(records, 'bucket.failed', row, undefined, data);
      };
      inBackground(record(), onError);
    },
  };
}
