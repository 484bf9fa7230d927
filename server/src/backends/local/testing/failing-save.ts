import { CayError } from '@cay/sdk/protocol';
import type { SandboxRecords } from '../sandbox-record.ts';

/** Records on a disk that is full whenever `full` says so. For tests. */
export function failingSave(records: SandboxRecords, full: () => boolean): SandboxRecords {
  return {
    ...records,
    async save(record) {
      if (full()) throw new CayError('resource_exhausted', 'Cannot record it: the disk is full');
      await records.save(record);
    },
  };
}
