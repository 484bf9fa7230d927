import type { Engine } from './engine.ts';
import type { SnapshotRecord } from './snapshot-record.ts';

/** Takes away whatever of a snapshot exists. The record goes last, so that a repetition finds the rest. */
export async function undoSnapshot(
  { resources, images, snapshots }: Engine,
  { id, tree, memory }: SnapshotRecord,
): Promise<void> {
  await resources.trees.remove(tree);
  if (memory) await images.remove(memory.image);
  await snapshots.delete(id);
}
