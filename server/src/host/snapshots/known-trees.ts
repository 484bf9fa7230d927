/**
 * The trees that there are, with their records. The record of a tree is written before the tree is made and
 * removed after the tree is gone. So a crash leaves at most a record without a tree, which is dropped here.
 */
import { CayError } from '@cay/sdk/protocol';
import { isDiskFull } from '../../lib/disk-full.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import { resourceError } from '../resource-error.ts';
import type { Records, TreeRecord } from './records.ts';
import type { TreeDriver } from './tree-driver.ts';

/**
 * Called before each step of a verb. A test that never resolves it stops the verb there, as a crash would.
 */
export type StepHook = (step: string) => Promise<void> | void;

export interface Tree {
  record: TreeRecord;
  state: 'coming' | 'here' | 'leaving';
  /** Running comparisons that read the tree; it is removed only after them. */
  readers?: Set<Promise<void>>;
}

export interface KnownTrees {
  readonly all: ReadonlyMap<string, Tree>;
  /** Rejects `not_found`. */
  active(key: string): Tree;
  /** Runs tasks of one tree one after the other. */
  enqueue<T>(name: string, task: () => Promise<T>): Promise<T>;
  /**
   * Writes the record, as the driver plans it, then performs the operation. Undoes both if the operation
   * fails.
   */
  grow(
    verb: string,
    name: string,
    record: TreeRecord,
    operation: (planned: TreeRecord) => Promise<void>,
  ): Promise<TreeRecord>;
  setQuota(key: string, tree: Tree, quotaBytes: number | null): Promise<void>;
  /** Waits for comparisons that read the tree. */
  remove(name: string, tree: Tree): Promise<void>;
}

export interface KnownTreesOptions {
  driver: TreeDriver;
  records: Records;
  onStep?: StepHook | undefined;
}

const NAME = /^[a-z0-9_-]{1,64}$/;

export async function openKnownTrees({ driver, records, onStep }: KnownTreesOptions): Promise<KnownTrees> {
  const step = async (name: string): Promise<void> => onStep?.(name);
  const queue = new KeyedQueue<string>();
  const all = new Map<string, Tree>();

  const recorded = await records.read();
  const present = new Set(await driver.trees());
  for (const name of recorded.keys()) {
    if (!present.has(name)) await records.remove(name);
  }
  for (const name of present) {
    // A tree without a record was not made by us. It is listed, so that its owner can decide.
    const record: TreeRecord = recorded.get(name) ?? { kind: 'active' };
    if (!recorded.has(name)) await records.write(name, record);
    all.set(name, { record, state: 'here' });
  }
  // After all records are loaded: repairing a tree may need its ancestors.
  for (const [name, { record }] of all) await driver.repair?.(name, record);

  function active(key: string): Tree {
    checkName(key);
    const tree = all.get(key);
    if (tree?.state !== 'here' || tree.record.kind !== 'active') {
      throw resourceError(
        'not_found',
        { kind: 'tree', name: key },
        (named) => `Cannot find ${named} among the active`,
      );
    }
    return tree;
  }

  async function grow(
    verb: string,
    name: string,
    record: TreeRecord,
    operation: (planned: TreeRecord) => Promise<void>,
  ): Promise<TreeRecord> {
    // From here the child is known, so its parent cannot be removed.
    const tree: Tree = { record, state: 'coming' };
    all.set(name, tree);
    const planned = await plan(name, record);
    tree.record = planned;
    try {
      await step(`${verb}:record`);
      await records.write(name, planned);
      await step(`${verb}:operation`);
      await operation(planned);
      await step(`${verb}:done`);
      tree.state = 'here';
      return planned;
    } catch (error) {
      // If undoing fails too, `make` replaces the rest, and the next open removes it.
      await driver.drop(name, planned).catch(() => {});
      await records.remove(name).catch(() => {});
      all.delete(name);
      if (!isDiskFull(error)) throw error;
      throw resourceError(
        'resource_exhausted',
        { kind: 'tree', name },
        (named) => `Cannot make ${named}: no space is left`,
        { cause: error },
      );
    }
  }

  async function plan(name: string, record: TreeRecord): Promise<TreeRecord> {
    try {
      return driver.plan ? await driver.plan(record) : record;
    } catch (error) {
      all.delete(name);
      throw error;
    }
  }

  async function remove(name: string, tree: Tree): Promise<void> {
    tree.state = 'leaving';
    try {
      await Promise.all([...(tree.readers ?? [])]);
      await step('remove:operation');
      await driver.drop(name, tree.record);
      await step('remove:record');
      await records.remove(name);
      all.delete(name);
    } catch (error) {
      tree.state = 'here';
      throw error;
    }
  }

  async function setQuota(key: string, tree: Tree, quotaBytes: number | null): Promise<void> {
    const record = { ...tree.record, quotaBytes };
    await step('quota:record');
    await records.write(key, record);
    tree.record = record;
    await step('quota:operation');
    await driver.limit(key, record);
  }

  async function enqueue<T>(name: string, task: () => Promise<T>): Promise<T> {
    checkName(name);
    return queue.run(name, task);
  }

  return { all, active, enqueue, grow, setQuota, remove };
}

export function checkName(name: string): void {
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new CayError('invalid_argument', `Not a name for a tree: "${String(name).slice(0, 80)}"`, {
      hint: 'use 1 to 64 of the characters a-z, 0-9, "_" and "-"',
    });
  }
}
