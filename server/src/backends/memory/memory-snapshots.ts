import { CayError, type SandboxSpec, type SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, SnapshotFacts, Snapshotting } from '../backend.ts';
import { requireSandboxId, requireSnapshotId, requireWanted, sameSpec } from '../support/check.ts';
import { noMemory, requireNoDependents } from '../support/snapshot-errors.ts';
import { copyTree } from './copy-tree.ts';
import { readSnapshotArchive, writeSnapshotArchive } from './snapshot-archive.ts';
import type { FileTree } from './file-tree.ts';
import type { MemorySandboxes } from './memory-sandbox.ts';
import { snapshotFiles } from './snapshot-files.ts';
import { treeChanges } from './tree-changes.ts';

interface Snapshot {
  facts: SnapshotFacts;
  tree: FileTree;
}

export interface MemorySnapshotsOptions {
  sandboxes: MemorySandboxes;
  validate(spec: SandboxSpec): Promise<void>;
}

/** Snapshots are copies of trees, which share content and cost as much as there are files. */
export function memorySnapshots({ sandboxes, validate }: MemorySnapshotsOptions): Snapshotting {
  const snapshots = new Map<SnapshotId, Snapshot>();

  function get(id: SnapshotId, { signal }: CallScope = {}): Snapshot {
    requireWanted(signal);
    requireSnapshotId(id);
    const snapshot = snapshots.get(id);
    if (!snapshot)
      throw new CayError('not_found', `Cannot find snapshot "${id}"`, { details: { what: 'snapshot' } });
    return snapshot;
  }

  return {
    async snapshot(id, snapshot, { memory = false, ...options } = {}) {
      const sandbox = sandboxes.get(id, options);
      requireSnapshotId(snapshot);
      if (memory) throw noMemory(`take snapshot "${snapshot}" of sandbox "${id}"`, 'the memory backend');
      const known = snapshots.get(snapshot);
      if (known && known.facts.sandbox !== id) throw taken(snapshot);
      if (known) return known.facts;
      // Content is shared and not counted by owner: each snapshot counts with all of its bytes.
      const fileBytes = sandbox.tree.usedBytes;
      const facts: SnapshotFacts = {
        id: snapshot,
        sandbox: id,
        spec: sandbox.spec,
        memory: false,
        fileBytes,
      };
      snapshots.set(snapshot, { facts, tree: copyTree(sandbox.tree) });
      return facts;
    },

    async snapshots() {
      return [...snapshots.values()].map(({ facts }) => facts);
    },

    async removeSnapshot(snapshot, { signal } = {}) {
      requireWanted(signal);
      requireSnapshotId(snapshot);
      const based = [...sandboxes.all].filter(([, { base }]) => base === snapshot).map(([id]) => id);
      requireNoDependents(snapshot, based);
      snapshots.delete(snapshot);
    },

    async clone(id, spec, snapshot, { memory = false, start = false, ...options } = {}) {
      requireWanted(options.signal);
      requireSandboxId(id);
      await validate(spec);
      const known = sandboxes.all.get(id);
      if (known && (known.base !== snapshot || !sameSpec(known.spec, spec))) {
        throw new CayError(
          'already_exists',
          `Cannot make sandbox "${id}": it exists already, and not from snapshot "${snapshot}" and this spec`,
        );
      }
      if (known) return start && !known.running ? sandboxes.start(known) : known.seen;
      const { tree } = get(snapshot, options);
      if (memory) throw noMemory(`make sandbox "${id}"`, 'the memory backend');
      const sandbox = sandboxes.make(id, spec, copyTree(tree));
      sandbox.base = snapshot;
      if (!start) return sandboxes.see(sandbox, { phase: 'stopped', incarnation: 1 });
      try {
        return await sandboxes.start(sandbox);
      } catch (error) {
        sandboxes.all.delete(id);
        throw error;
      }
    },

    async rollback(id, snapshot, { memory = false, ...options } = {}) {
      const sandbox = sandboxes.get(id, options);
      const { tree } = get(snapshot, options);
      if (memory) throw noMemory(`roll sandbox "${id}" back`, 'the memory backend');
      if (sandbox.running) await sandboxes.start(sandbox, copyTree(tree));
      else sandbox.tree = sandboxes.fit(sandbox, copyTree(tree));
      sandbox.base = snapshot;
      return sandbox.running ? sandbox.seen : sandboxes.see(sandbox, { phase: 'stopped' });
    },

    async *changes(from, to, options) {
      yield* treeChanges(get(from, options).tree, get(to, options).tree);
    },

    snapshotFiles: (snapshot) => snapshotFiles((options) => get(snapshot, options).tree),

    async *exportSnapshot(snapshot, options) {
      const { facts, tree } = get(snapshot, options);
      yield* writeSnapshotArchive(facts, tree);
    },

    async importSnapshot(snapshot, archive, options = {}) {
      requireWanted(options.signal);
      requireSnapshotId(snapshot);
      const known = snapshots.get(snapshot);
      if (known) return known.facts;
      const read = await readSnapshotArchive(archive, options);
      const facts: SnapshotFacts = { ...read.facts, id: snapshot, fileBytes: read.bytes };
      snapshots.set(snapshot, { facts, tree: read.tree });
      return facts;
    },
  };
}

const taken = (snapshot: SnapshotId) =>
  new CayError('already_exists', `Cannot make snapshot "${snapshot}": another has that id`);
