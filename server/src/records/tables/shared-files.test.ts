import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SnapshotId } from '@cay/sdk/protocol';
import { DatabaseSync } from 'node:sqlite';
import { openRecords } from '../open-records.ts';
import type { Records } from '../records.ts';

let directory: string;
let records: Records;
let database: DatabaseSync;
let project: string;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cay-shared-files-'));
  records = await openRecords({ directory });
  project = (await records.projects.create('p')).id;
  database = new DatabaseSync(join(directory, 'records.db'));
});
afterEach(async () => {
  database.close();
  await records.close();
  rmSync(directory, { recursive: true, force: true });
});

function insert(id: string, parent: string | null, bytes: number): void {
  database
    .prepare(
      `INSERT INTO snapshots (id, project, sandbox, parent, cause, labels, memory, spec, quiet, state, here, created_at, file_bytes)
     VALUES (?, ?, 'sbx', ?, 'request', '{}', 0, '{}', 1, 'kept', 1, 0, ?)`,
    )
    .run(id, project, parent, bytes);
}

describe('files that snapshots share', () => {
  const LENGTH = 300;
  const orders = {
    'first to last': (numbers: number[]) => numbers,
    'last to first': (numbers: number[]) => numbers.toReversed(),
  };

  it.each(Object.entries(orders))(
    'take rows in proportion to the snapshots, and are never counted less (%s)',
    async (_name, ordered) => {
      const { snapshots } = records;
      // A long line, each with a fork that stays.
      for (let number = 0; number < LENGTH; number++) {
        insert(`line-${number}`, number === 0 ? null : `line-${number - 1}`, 1000);
        insert(`fork-${number}`, `line-${number}`, 1);
      }
      for (const number of ordered(Array.from({ length: LENGTH }, (_, at) => at)))
        await snapshots.delete(`line-${number}` as SnapshotId);
      const { rows } = database.prepare('SELECT count(*) AS rows FROM shared_files').get() as {
        rows: number;
      };
      expect(rows).toBeLessThanOrEqual(64 * LENGTH);
      expect((await snapshots.usage(project)).bytes).toBeGreaterThanOrEqual(1001 * LENGTH);
      for (let number = 0; number < LENGTH; number++) await snapshots.delete(`fork-${number}` as SnapshotId);
      expect(await snapshots.usage(project)).toMatchObject({ bytes: 0, count: 0 });
      expect(database.prepare('SELECT 1 FROM shared_files').get()).toBeUndefined();
    },
  );
});
