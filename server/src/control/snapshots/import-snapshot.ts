/**
 * Imports an archive as a snapshot: records it as `taking`, has the backend unpack it, records what the
 * archive says about itself. Archives come from outside: nothing in them is trusted.
 */
import { CayError, ImportSnapshotSchema, SandboxSpecSchema, newId, type SnapshotId } from '@cay/sdk/protocol';
import type { SnapshotFacts } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import type { Transaction } from '../../records/records.ts';
import { showSnapshot, type SnapshotRow } from '../../records/tables/snapshot-row.ts';
import type { Core } from '../core.ts';
import { choosePlatform } from '../placement/placement.ts';
import { newSnapshotRow } from './new-snapshot-row.ts';
import { requireSnapshots } from './require-snapshots.ts';
import type { SnapshotVerbs } from './snapshot.ts';

export function importVerb({
  archives: { seal },
  backend,
  clock,
  onError,
  pressure,
  quota,
  recordEvent,
  records,
}: Pick<
  Core,
  'archives' | 'backend' | 'clock' | 'onError' | 'pressure' | 'quota' | 'recordEvent' | 'records'
>): Pick<SnapshotVerbs, 'importSnapshot'> {
  /** Until the archive is unpacked its sandbox and spec are unknown, so the record has placeholders. */
  async function recordTaking(project: string, labels: Record<string, string>): Promise<SnapshotId> {
    const id = newId('snap');
    await records.transaction(async (tx) => {
      await quota.requireRoom(tx, project, 'snapshots', 1);
      await tx.snapshots.insert(
        newSnapshotRow({
          id,
          project,
          sandbox: newId('sbx'),
          parent: null,
          cause: 'import',
          labels,
          spec: SandboxSpecSchema.parse({}),
          network: null,
          templateNetwork: null,
          quiet: true,
          createdAtMs: clock.now(),
        }),
      );
    });
    return id;
  }

  async function recordImported(
    tx: Transaction,
    id: SnapshotId,
    facts: SnapshotFacts,
    name: string | undefined,
    importedBytes: number,
  ): Promise<SnapshotRow> {
    const spec = SandboxSpecSchema.safeParse(facts.spec);
    if (!spec.success)
      throw new CayError('invalid_argument', 'Cannot import the archive: its manifest has no valid spec', {
        cause: spec.error,
      });
    const { sandbox, memory, memoryBytes = null } = facts;
    const draft = await tx.snapshots.get(id);
    if (!draft) throw new CayError('conflict', `The import of snapshot "${id}" was undone by another server`);
    await tx.snapshots.delete(id);
    const row: SnapshotRow = {
      ...draft,
      sandbox,
      name: name ?? null,
      spec: spec.data,
      memory,
      runtime: memory ? (facts.runtime ?? null) : null,
      fileBytes: facts.fileBytes ?? importedBytes - (memoryBytes ?? 0),
      memoryBytes,
      state: 'kept',
    };
    await tx.snapshots.insert(row);
    return row;
  }

  return {
    async importSnapshot(principal, data, request, options) {
      const { name, labels, platform, allowForeignMemory } = ImportSnapshotSchema.parse(request);
      const { project } = principal;
      if (allowForeignMemory && principal.role !== 'admin') {
        throw new CayError(
          'permission_denied',
          'Only an admin may set "allowForeignMemory", for memory that this installation has not signed',
          { hint: 'import it without memory: its files are kept' },
        );
      }
      if (platform !== undefined) choosePlatform(backend, { platform, labels });
      const travel = requireSnapshots(backend);
      using coming = quota.begin(project, 'imports', ['uploadBytes', 'snapshotBytes']);
      await coming.add(0);
      await pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform });
      const id = await recordTaking(project, labels);
      try {
        await faultPoint('control.import.recorded');
        const facts = await travel.importSnapshot(id, data, {
          ...options,
          project,
          platform,
          seal,
          foreignMemory: allowForeignMemory,
          admit: (bytes) => coming.add(bytes),
        });
        await faultPoint('control.import.taken');
        const { memory, memoryDropped = null } = facts;
        return await records.transaction(async (tx) => {
          const row = await recordImported(tx, id, facts, name, coming.bytes);
          await recordEvent(tx, 'snapshot.imported', { id: row.sandbox, project: row.project }, principal, {
            snapshot: id,
            memory,
            ...(memoryDropped && { memoryDropped }),
            ...(allowForeignMemory && { allowForeignMemory }),
          });
          return { ...showSnapshot(row), memoryDropped };
        });
      } catch (error) {
        await travel.removeSnapshot(id).then(() => records.snapshots.delete(id), onError);
        throw error;
      }
    },
  };
}
