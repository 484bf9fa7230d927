/** Snapshots as archives, out and in. The format is that of all backends (`host/archives/envelope.ts`). */
import { CayError, isCayError, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import { openArchive } from '../../../host/archives/open-archive.ts';
import { archiveOfTree } from '../../../host/archives/write-archive.ts';
import { expandSparse } from '../../../lib/tar/expand-sparse.ts';
import type { ArchiveSeal, CallScope, ImportOptions, SnapshotFacts } from '../../backend.ts';
import { checkedTree } from '../../support/checked-tree.ts';
import { requireWanted } from '../../support/check.ts';
import { importFailure } from '../../support/snapshot-errors.ts';
import { writableDirectories } from '../workloads/pod-spec.ts';
import { checkWorkdir } from '../workloads/workdir.ts';
import type { SnapshotStore } from './snapshot-store.ts';
import { factsOf } from './take-snapshot.ts';
import { bounded, mostTreeBytes, onlyIn } from './tree-entries.ts';

interface ArchiveContext {
  store: SnapshotStore;
  mostBytes(spec: SandboxSpec): number;
}

export async function* exportArchive(
  { store }: ArchiveContext,
  snapshot: SnapshotId,
  { seal, signal }: CallScope & { seal?: ArchiveSeal },
): AsyncIterable<Uint8Array> {
  const { id, sandbox, spec } = await store.require(snapshot);
  const archive = archiveOfTree({
    manifest: { snapshot: id, sandbox, spec, runtime: null, part: true },
    packed: store.packed(snapshot),
    ...(seal && { sign: (digest: string) => seal.sign(digest) }),
  });
  for await (const bytes of archive) {
    requireWanted(signal);
    yield bytes;
  }
}

/** Imports those parts of the tree that a pod of its spec can write. */
export async function importArchive(
  { store, mostBytes }: ArchiveContext,
  snapshot: SnapshotId,
  archive: AsyncIterable<Uint8Array>,
  { signal, admit }: ImportOptions,
): Promise<SnapshotFacts> {
  requireWanted(signal);
  if (await store.find(snapshot))
    throw new CayError('already_exists', `Snapshot "${snapshot}" exists already`);
  const action = `take in snapshot "${snapshot}"`;
  const opened = openArchive(archive, { ...(signal && { signal }) });
  try {
    const { sandbox, spec, memory } = await opened.manifest();
    const directories = directoriesFor(spec);
    const whole = checkedTree(plain(opened.tree()), { allowMarks: true });
    const own = onlyIn(whole, directories, { parents: true });
    const tree = bounded(admitted(own, admit), mostTreeBytes(mostBytes(spec)), action);
    const finish = async () => {
      await opened.skipMemory();
      await opened.end();
    };
    const kept = await store.keep({ id: snapshot, sandbox, spec, directories }, tree, {
      ...(signal && { signal }),
      finish,
    });
    return { ...factsOf(kept), ...(memory && { memoryDropped: 'runtime' as const }) };
  } catch (error) {
    throw importFailure(error, action, signal);
  } finally {
    await opened.close();
  }
}

/** A working directory that no pod can have is left to the image. */
function directoriesFor(spec: SandboxSpec): string[] {
  const usual = { ...spec, readOnlyRoot: false };
  try {
    checkWorkdir(spec.workdir);
    return writableDirectories(usual);
  } catch {
    return writableDirectories({ ...usual, workdir: '/' });
  }
}

/** Expands sparse files. Every defect of the archive has the same code. */
async function* plain(tree: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* expandSparse(tree);
  } catch (error) {
    if (isCayError(error) || (error as NodeJS.ErrnoException).code !== undefined) throw error;
    throw new CayError('invalid_argument', `The archive is damaged: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

async function* admitted(
  tree: AsyncIterable<Uint8Array>,
  admit: ImportOptions['admit'],
): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const part of tree) {
    await admit?.(part.length);
    yield part;
  }
}
