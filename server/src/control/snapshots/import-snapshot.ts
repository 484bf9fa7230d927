/**
 * Imports an archive as a snapshot: records it as `taking`, has the backend unpack it, records what the
 * archive says about itself. Archives come from outside: nothing in them is trusted.
 */
import { CayError, ImportSnapshotSchema, SandboxSpecSchema, newId, type SnapshotId } from '@cay/sdk/protocol';
import type { SnapshotFacts } from '../../backends/backend.ts';
import { faultPoint } from '../../lib/fault-point.ts';
import { showSnapshot, type SnapshotRow } from '../../records/snapshots.ts';
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
  records: { database, snapshots },
}: Pick<
  Core,
  'archives' | 'backend' | 'clock' | 'onError' | 'pressure' | 'quota' | 'recordEvent' | 'records'
>): Pick<SnapshotVerbs, 'importSnapshot'> {
  /** Until the archive is unpacked its sandbox and spec are unknown, so the record has placeholders. */
  function recordTaking(project: string, labels: Record<string, string>): SnapshotId {
    const id = newId('snap');
    snapshots.insert(
      newSnapshotRow({
        id,
        project,
        sandbox: newId('sbx'),
        parent: null,
        cause: 'import',
        labels,
        spec: SandboxSpecSchema.parse({}),
        quiet: true,
        createdAtMs: clock.now(),
      }),
    );
    return id;
  }

  function recordImported(
    id: SnapshotId,
    facts: SnapshotFacts,
    name: string | undefined,
    importedBytes: number,
  ): SnapshotRow {
    const spec = SandboxSpecSchema.safeParse(facts.spec);
    if (!spec.success)
      throw new CayError('invalid_argument', 'Cannot import the archive: its manifest has no valid spec', {
        cause: spec.error,
      });
    const { sandbox, memory, memoryBytes = null } = facts;
    const draft = snapshots.get(id)!;
    snapshots.delete(id);
    snapshots.insert({
      ...draft,
      sandbox,
      name: name ?? null,
      spec: spec.data,
      memory,
      runtime: memory ? (facts.runtime ?? null) : null,
      fileBytes: facts.fileBytes ?? importedBytes - (memoryBytes ?? 0),
      memoryBytes,
      state: 'kept',
    });
    return snapshots.get(id)!;
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
      coming.add(0);
      quota.requireRoom(project, 'snapshots', 1);
      pressure.admit({ memoryBytes: null, diskBytes: null }, { starts: false, platform });
      const id = recordTaking(project, labels);
      try {
        await faultPoint('control.import.recorded');
        const facts = await travel.importSnapshot(id, data, {
          ...options,
          platform,
          seal,
          foreignMemory: allowForeignMemory,
          admit: (bytes) => coming.add(bytes),
        });
        await faultPoint('control.import.taken');
        const { memory, memoryDropped = null } = facts;
        return database.transaction(() => {
          const row = recordImported(id, facts, name, coming.bytes);
          recordEvent('snapshot.imported', { id: row.sandbox, project: row.project }, principal, {
            snapshot: id,
            memory,
            ...(memoryDropped && { memoryDropped }),
            ...(allowForeignMemory && { allowForeignMemory }),
          });
          return { ...showSnapshot(row), memoryDropped };
        });
      } catch (error) {
        await travel.removeSnapshot(id).then(() => snapshots.delete(id), onError);
        throw error;
      }
    },
  };
}
