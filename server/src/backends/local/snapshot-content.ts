/**
 * Looking into snapshots: what differs between two, and their files. Owners are those that the sandbox sees.
 */
import { CayError, type FileChange, type SnapshotId } from '@cay/sdk/protocol';
import { readTreeFile } from '../../host/archives/read-tree-file.ts';
import { tarPaths } from '../../host/archives/tar-paths.ts';
import type { IdMapping } from '../../host/runtimes/runtime.ts';
import type { CallScope, SnapshotFiles } from '../backend.ts';
import { requireSnapshotId, requireWanted } from '../support/check.ts';
import type { Engine } from './engine.ts';
import { requireKept, type SnapshotRecord } from './snapshot-record.ts';

export async function* changesBetween(
  engine: Engine,
  from: SnapshotId,
  to: SnapshotId,
  { signal }: CallScope = {},
): AsyncIterable<FileChange> {
  const [before, after] = [requireSnapshot(engine, from), requireSnapshot(engine, to)];
  const [was, is] = [idsOf(engine, before), idsOf(engine, after)];
  for await (const change of wanted(
    engine.resources.trees.changes(before.tree, after.tree, withSignal(signal)),
    signal,
  )) {
    yield {
      ...change,
      ...(change.before && { before: inside(change.before, was) }),
      ...(change.after && { after: inside(change.after, is) }),
    };
  }
}

export function filesOf(engine: Engine, snapshot: SnapshotId): SnapshotFiles {
  const { trees, guestBinary } = engine.resources;
  return {
    async *read(path, { signal } = {}) {
      const { tree } = requireSnapshot(engine, snapshot);
      yield* wanted(readTreeFile(await trees.committedPath(tree), path, withSignal(signal)), signal);
    },
    async *tar(paths, { signal } = {}) {
      const record = requireSnapshot(engine, snapshot);
      const tree = { path: await trees.committedPath(record.tree), ids: idsOf(engine, record) };
      yield* wanted(tarPaths({ ...tree, paths, guestBinary, ...withSignal(signal) }), signal);
    },
  };
}

/** Rejects `invalid_argument` or `not_found`. */
export function requireSnapshot({ snapshots }: Engine, id: SnapshotId): SnapshotRecord {
  requireSnapshotId(id);
  return requireKept(snapshots, id);
}

/** The ids that the files of a snapshot belong to on the host. */
export function idsOf({ resources }: Engine, { id, runtime }: SnapshotRecord): IdMapping {
  const ids = resources.runtimes.get(runtime)?.ids;
  if (ids) return ids;
  throw new CayError(
    'failed_precondition',
    `Cannot read snapshot "${id}": the runtime "${runtime}" is unknown`,
  );
}

/** A caller that gives up gets `cancelled`, whatever the reader rejects with. */
export async function* wanted<T>(
  values: AsyncIterable<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  requireWanted(signal);
  try {
    yield* values;
  } catch (error) {
    requireWanted(signal);
    throw error;
  }
}

export function withSignal(signal: AbortSignal | undefined): { signal?: AbortSignal } {
  return signal ? { signal } : {};
}

/** What the kernel shows inside for an owner that has no id there. */
const NOBODY = 65_534;

function inside<F extends { uid: number; gid: number }>(facts: F, { hostId, size }: IdMapping): F {
  const shift = (id: number) => (id >= hostId && id < hostId + size ? id - hostId : NOBODY);
  return { ...facts, uid: shift(facts.uid), gid: shift(facts.gid) };
}
