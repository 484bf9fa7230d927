import type { Limits, SandboxId, SandboxSpec, SnapshotId } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';
import type { FileTree } from './file-tree.ts';
import type { Machine } from './machine.ts';
import type { MemoryGuest } from './memory-guest.ts';

/** What runs, from one start to its end. */
export interface Incarnation {
  guest: MemoryGuest;
  machine: Machine;
  end: AbortController;
}

export interface MemorySandbox {
  spec: SandboxSpec;
  tree: FileTree;
  limits: Limits;
  /** As every platform has one, so that tests see it too. */
  uid: string;
  seen: Observation;
  running: Incarnation | undefined;
  /** The snapshot that its files came from. */
  base: SnapshotId | undefined;
}

/** The sandboxes of one backend, as all its parts share them. */
export interface MemorySandboxes {
  readonly all: Map<SandboxId, MemorySandbox>;
  /** Rejects `not_found`. */
  get(id: SandboxId, options?: CallScope): MemorySandbox;
  /** Gives a tree the sandbox's limits and rights, and gives it back. */
  fit(sandbox: Pick<MemorySandbox, 'spec' | 'limits'>, tree: FileTree): FileTree;
  /** A sandbox with these files, of which nothing runs yet. */
  make(id: SandboxId, spec: SandboxSpec, tree: FileTree): MemorySandbox;
  /**
   * Begins another incarnation on that tree and ends the one there was. When it rejects nothing has changed.
   */
  start(sandbox: MemorySandbox, tree?: FileTree): Promise<Observation>;
  /** Sets its observation, and reports it to watchers. */
  see(sandbox: MemorySandbox, change: Pick<Observation, 'phase'> & Partial<Observation>): Observation;
}
