/** Looking into snapshots: what differs between two, their files, and whole ones as archives. */
import { CayError, type FileChange, type SnapshotId } from '@cay/sdk/protocol';
import type { CallOptions, SnapshotFacts, SnapshotFiles } from '../backend.ts';
import { requireSnapshotId } from '../check.ts';
import type { Engine } from './engine.ts';
import { requireKept, type SnapshotRecord } from './snapshot-record.ts';

export async function* changesBetween(
  engine: Engine,
  from: SnapshotId,
  to: SnapshotId,
  options: CallOptions = {},
): AsyncIterable<FileChange> {
  const [before, after] = [kept(engine, from), kept(engine, to)];
  const [was, is] = [hostIdOf(engine, before), hostIdOf(engine, after)];
  for await (const change of engine.ground.trees.changes(before.tree, after.tree, options)) {
    yield {
      ...change,
      ...(change.before && { before: inside(change.before, was) }),
      ...(change.after && { after: inside(change.after, is) }),
    };
  }
}

export function filesOf(engine: Engine, snapshot: SnapshotId): SnapshotFiles {
  void engine;
  void snapshot;
  throw new CayError('unsupported', 'Cannot read snapshots yet');
}

export function exportSnapshot(engine: Engine, snapshot: SnapshotId, _options: CallOptions = {}): AsyncIterable<Uint8Array> {
  void kept(engine, snapshot);
  throw new CayError('unsupported', 'Cannot export snapshots yet');
}

export async function importSnapshot(
  _engine: Engine,
  snapshot: SnapshotId,
  _archive: AsyncIterable<Uint8Array>,
  _options: CallOptions = {},
): Promise<SnapshotFacts> {
  requireSnapshotId(snapshot);
  throw new CayError('unsupported', 'Cannot import snapshots yet');
}

function kept({ snapshots }: Engine, id: SnapshotId): SnapshotRecord {
  requireSnapshotId(id);
  return requireKept(snapshots, id);
}

function hostIdOf({ ground }: Engine, { runtime }: SnapshotRecord): number {
  return ground.runtimes.get(runtime)?.ids.hostId ?? 0;
}

/** Owners as the sandbox sees them. */
function inside<F extends { uid: number; gid: number }>(facts: F, hostId: number): F {
  return { ...facts, uid: facts.uid - hostId, gid: facts.gid - hostId };
}
