import { CayError, isCayError } from '@cay/sdk/protocol';
import type { BucketSource } from '../../bucket-mounts/bucket-mounts.ts';
import { inBackground } from '../../lib/in-background.ts';
import type { Core } from '../core.ts';
import type { ProjectBuckets } from './project-buckets.ts';

/** Opens buckets for the mounts of sandboxes, and records what could not be written. */
export function mountSource({
  onError,
  projectBuckets,
  recordEvent,
  records,
}: Pick<Core, 'onError' | 'recordEvent' | 'records'> & { projectBuckets: ProjectBuckets }): BucketSource {
  return {
    async open(sandbox, name) {
      const row = await records.sandboxes.get(sandbox);
      if (!row) throw new CayError('not_found', `Sandbox "${sandbox}" does not exist`);
      const info = await projectBuckets.find(row.project, name);
      return { bucket: await projectBuckets.open(row.project, info), readOnly: info.readOnly };
    },
    failed({ sandbox, bucket, path }, { key, error, lost }) {
      const message = (error instanceof Error ? error.message : 'it was not tried').slice(0, 1000);
      const code = isCayError(error) ? error.code : 'internal';
      const data = { bucket, path, direction: 'up', key, lost, code, error: message };
      const record = async () => {
        const row = await records.sandboxes.get(sandbox);
        if (row) await recordEvent(records, 'bucket.failed', row, undefined, data);
      };
      inBackground(record(), onError);
    },
  };
}
