import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SnapshotId } from '@cay/sdk/protocol';
import { openDatabase, type Database } from './database.ts';
import { projectRecords } from './projects.ts';
import { snapshotRecords } from './snapshots.ts';

let directory: string;
let database: Database;
let project: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cay-shared-files-'));
  database = openDatabase(join(directory, 'records.db'));
  project = projectRecords(database).create('p').id;
});
afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true, force: true });
});

function insert(id: string, parent: string | null, bytes: number): void {
  database.run(
    `INSERT INTO snapshots (id, project, sandbox, parent, cause, labels, memory, spec, quiet, state, here, created_at, file_bytes)
     VALUES (?, ?, 'sbx', ?, 'request', '{}', 0, '{}', 1, 'kept', 1, 0, ?)`,
    id,
    project,
    parent,
    bytes,
  );
}

describe('files that snapshots share', () => {
  const LENGTH = 300;
  const orders = {
    'first to last': (numbers: number[]) => numbers,
    'last to first': (numbers: number[]) => numbers.toReversed(),
  };

  it.each(Object.entries(orders))(
    'take rows in proportion to the snapshots, and are never counted less (%s)',
    (_name, ordered) => {
      const snapshots = snapshotRecords(database);
      // A long line, each with a fork that stays.
      for (let number = 0; number < LENGTH; number++) {
        insert(`line-${number}`, number === 0 ? null : `line-${number - 1}`, 1000);
        insert(`fork-${number}`, `line-${number}`, 1);
      }
      for (const number of ordered(Array.from({ length: LENGTH }, (_, at) => at)))
        snapshots.delete(`line-${number}` as SnapshotId);
      const { rows } = database.get<{ rows: number }>('SELECT count(*) AS rows FROM shared_files')!;
      expect(rows).toBeLessThanOrEqual(64 * LENGTH);
      expect(snapshots.usage(project).bytes).toBeGreaterThanOrEqual(1001 * LENGTH);
      for (let number = 0; number < LENGTH; number++) snapshots.delete(`fork-${number}` as SnapshotId);
      expect(snapshots.usage(project)).toMatchObject({ bytes: 0, count: 0 });
      expect(database.get('SELECT 1 FROM shared_files')).toBeUndefined();
    },
  );
});
