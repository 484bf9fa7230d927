/**
 * The part of a Snapshotter that is the same on every filesystem: names, idempotency, the order of records
 * and operations, which trees can be removed, and recovery after a crash. A driver provides a `TreeDriver`,
 * which only performs the operations.
 *
 * The record of a tree is written before the tree is made and removed after the tree is gone. So a crash
 * leaves at most a record without a tree, which `openForest` drops.
 */
import { CayError, type FileChange } from '@cay/sdk/protocol';
import { isDiskFull } from '../../lib/disk-full.ts';
import { KeyedQueue } from '../../lib/keyed-queue.ts';
import type { Records, TreeRecord } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import { resourceError } from '../resource-error.ts';

export interface TreeDriver {
  /** Names of all complete trees. Removes incomplete ones. */
  trees(): Promise<string[]>;
  /** Finishes what the record says and a crash has interrupted. */
  mend?(name: string, record: TreeRecord): Promise<void>;
  /** Adds driver-specific fields to the record of a tree that is about to be made. */
  plan?(record: TreeRecord): Promise<TreeRecord>;
  /** Makes an active tree from `record.parent`. Replaces what an earlier failure left under this name. */
  make(key: string, record: TreeRecord): Promise<void>;
  /** Makes the committed tree `name` from the active one, atomically. */
  copy(name: string, key: string, record: TreeRecord): Promise<void>;
  drop(name: string, record: TreeRecord): Promise<void>;
  path(key: string, record: TreeRecord): Promise<string>;
  /** The directory of a committed tree, read-only. */
  committedPath(name: string, record: TreeRecord): Promise<string>;
  /** Compares two trees, given their directories. */
  compare(from: CommittedTree, to: CommittedTree, signal: AbortSignal | undefined): Promise<FileChange[]>;
  limit(key: string, record: TreeRecord): Promise<void>;
  usage(name: string, record: TreeRecord): Promise<number>;
  /** Absent where the filesystem does not count it. */
  written?(key: string, record: TreeRecord): Promise<number | undefined>;
}

export interface CommittedTree {
  name: string;
  path: string;
}

/**
 * Called before each step of a verb. A test that never resolves it stops the verb there, as a crash would.
 */
export type StepHook = (step: string) => Promise<void> | void;

export interface Forest {
  /** The verbs of the Snapshotter that are the same for all drivers. */
  trees: Omit<Snapshotter, 'name' | 'capabilities' | 'space' | 'close' | 'destroy'>;
  record(name: string): TreeRecord | undefined;
}

export interface ForestOptions {
  driver: TreeDriver;
  records: Records;
  /** The driver's name, and whether it enforces quotas. */
  driverName: string;
  quota: boolean;
  onStep?: StepHook | undefined;
}

interface Tree {
  record: TreeRecord;
  state: 'coming' | 'here' | 'leaving';
  /** Running comparisons that read the tree; it is removed only after them. */
  readers?: Set<Promise<void>>;
}

const NAME = /^[a-z0-9_-]{1,64}$/;

export async function openForest(options: ForestOptions): Promise<Forest> {
  const { driver, driverName, records } = options;
  const step = async (name: string): Promise<void> => options.onStep?.(name);
  const queue = new KeyedQueue<string>();
  const trees = new Map<string, Tree>();

  await load();

  async function load(): Promise<void> {
    const recorded = await records.read();
    const present = new Set(await driver.trees());
    for (const name of recorded.keys()) {
      if (!present.has(name)) await records.remove(name);
    }
    for (const name of present) {
      // A tree without a record was not made by us. It is listed, so that its owner can decide.
      const record: TreeRecord = recorded.get(name) ?? { kind: 'active' };
      if (!recorded.has(name)) await records.write(name, record);
      trees.set(name, { record, state: 'here' });
    }
    // After all records are loaded: mending a tree may need its ancestors.
    for (const [name, { record }] of trees) await driver.mend?.(name, record);
  }

  function active(key: string): Tree {
    checkName(key);
    const tree = trees.get(key);
    if (tree?.state !== 'here' || tree.record.kind !== 'active') {
      throw resourceError(
        'not_found',
        { kind: 'tree', name: key },
        (named) => `Cannot find ${named} among the active`,
      );
    }
    return tree;
  }

  /**
   * The directory of a committed tree. With `done`, the tree is not removed before that settles. Waits for a
   * tree that is being committed.
   */
  async function committed(name: string, done?: Promise<void>): Promise<CommittedTree> {
    return enqueue(name, async () => {
      const tree = trees.get(name);
      if (tree?.state !== 'here' || tree.record.kind !== 'committed')
        throw resourceError(
          'not_found',
          { kind: 'tree', name },
          (named) => `Cannot find ${named} among the committed`,
        );
      const path = await driver.committedPath(name, tree.record);
      if (done) {
        const readers = (tree.readers ??= new Set());
        readers.add(done);
        inBackground(
          done.then(() => readers.delete(done)),
          ignoreFailure,
        );
      }
      return { name, path };
    });
  }

  async function compare(from: string, to: string, signal: AbortSignal | undefined): Promise<FileChange[]> {
    const { promise, resolve } = Promise.withResolvers<void>();
    try {
      const held = new Map<string, CommittedTree>();
      // Always in the same order, so that concurrent comparisons and removals cannot deadlock.
      for (const name of [from, to].sort()) held.set(name, await committed(name, promise));
      return from === to ? [] : await driver.compare(held.get(from)!, held.get(to)!, signal);
    } finally {
      resolve();
    }
  }

  function checkQuota(quotaBytes: number | null | undefined): void {
    if (quotaBytes === undefined || quotaBytes === null) return;
    if (!Number.isSafeInteger(quotaBytes) || quotaBytes < 1) {
      throw new CayError(
        'invalid_argument',
        `Cannot limit a tree to "${quotaBytes}" bytes: not a positive whole number`,
      );
    }
    if (!options.quota) {
      throw new CayError(
        'unsupported',
        `Cannot limit a tree to ${quotaBytes} bytes: "${driverName}" here has no quotas`,
      );
    }
  }

  /** Writes the record, then performs the operation. Undoes both if the operation fails. */
  async function grow(
    verb: string,
    name: string,
    record: TreeRecord,
    operation: () => Promise<void>,
  ): Promise<void> {
    const tree: Tree = { record, state: 'coming' };
    trees.set(name, tree);
    try {
      await step(`${verb}:record`);
      await records.write(name, record);
      await step(`${verb}:operation`);
      await operation();
      await step(`${verb}:done`);
      tree.state = 'here';
    } catch (error) {
      // If undoing fails too, `make` replaces the rest, and the next open removes it.
      await driver.drop(name, record).catch(() => {});
      await records.remove(name).catch(() => {});
      trees.delete(name);
      if (!isDiskFull(error)) throw error;
      throw resourceError(
        'resource_exhausted',
        { kind: 'tree', name },
        (named) => `Cannot make ${named}: no space is left`,
        { cause: error },
      );
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

  const verbs: Forest['trees'] = {
    async prepare(key, { parent, quotaBytes } = {}) {
      checkName(key);
      checkQuota(quotaBytes);
      if (parent !== undefined) {
        checkName(parent);
        // Waits for a parent that is being committed.
        await queue.run(parent, async () => {});
      }
      return queue.run(key, async () => {
        const tree = trees.get(key);
        if (tree) {
          if (tree.record.kind !== 'active' || tree.record.parent !== parent) throw taken(key, tree.record);
          if (quotaBytes !== undefined && quotaBytes !== (tree.record.quotaBytes ?? null)) {
            await setQuota(key, tree, quotaBytes);
          }
          return driver.path(key, tree.record);
        }
        const from = parent === undefined ? undefined : trees.get(parent);
        if (parent !== undefined && (from?.state !== 'here' || from.record.kind !== 'committed')) {
          throw resourceError(
            'not_found',
            { kind: 'tree', name: key },
            (named) => `Cannot prepare ${named}: what it is to continue from is gone`,
            { details: { parent } },
          );
        }
        const record: TreeRecord = {
          kind: 'active',
          ...(parent !== undefined && { parent }),
          ...(quotaBytes !== undefined && quotaBytes !== null && { quotaBytes }),
        };
        // From here the child is known, so its parent cannot be removed.
        trees.set(key, { record, state: 'coming' });
        const planned = driver.plan ? await plan(key, record) : record;
        await grow('prepare', key, planned, () => driver.make(key, planned));
        return driver.path(key, planned);
      });
    },

    path(key) {
      return enqueue(key, () => driver.path(key, active(key).record));
    },

    commit(name, key) {
      return enqueue(name, async () => {
        checkName(key);
        const there = trees.get(name);
        if (there) {
          if (there.record.kind === 'committed' && there.record.source === key) return;
          throw taken(name, there.record);
        }
        // The name is free and the key is not, so two commits cannot deadlock.
        if (trees.get(key)?.state !== 'coming') active(key);
        await queue.run(key, async () => {
          const { parent } = active(key).record;
          const record: TreeRecord = {
            kind: 'committed',
            source: key,
            ...(parent !== undefined && { parent }),
          };
          trees.set(name, { record, state: 'coming' });
          const planned = driver.plan ? await plan(name, record) : record;
          await grow('commit', name, planned, () => driver.copy(name, key, planned));
        });
      });
    },

    committedPath: async (name) => (await committed(name)).path,

    async *changes(from, to, { signal } = {}) {
      signal?.throwIfAborted();
      yield* await compare(from, to, signal);
    },

    async setQuota(key, quotaBytes) {
      checkQuota(quotaBytes);
      await enqueue(key, () => setQuota(key, active(key), quotaBytes));
    },

    async written(key) {
      checkName(key);
      const { record } = active(key);
      return driver.written?.(key, record);
    },

    async usage(name) {
      checkName(name);
      const tree = trees.get(name);
      if (tree?.state !== 'here')
        throw resourceError('not_found', { kind: 'tree', name }, (named) => `Cannot find ${named}`);
      return driver.usage(name, tree.record);
    },

    remove(name) {
      return enqueue(name, async () => {
        const tree = trees.get(name);
        if (!tree) return;
        const child = [...trees].find(([, { record }]) => record.parent === name)?.[0];
        if (child !== undefined) {
          throw resourceError(
            'failed_precondition',
            { kind: 'tree', name },
            (named) => `Cannot remove ${named}: another tree descends from it`,
            { details: { child } },
          );
        }
        tree.state = 'leaving';
        try {
          await Promise.all([...(tree.readers ?? [])]);
          await step('remove:operation');
          await driver.drop(name, tree.record);
          await step('remove:record');
          await records.remove(name);
          trees.delete(name);
        } catch (error) {
          tree.state = 'here';
          throw error;
        }
      });
    },

    async list() {
      return [...trees]
        .filter(([, { state }]) => state === 'here')
        .map(
          ([
            name,
            {
              record: { kind, parent },
            },
          ]) => ({ name, kind, ...(parent !== undefined && { parent }) }),
        )
        .sort((a, b) => (a.name < b.name ? -1 : 1));
    },
  };
  return { trees: verbs, record: (name) => trees.get(name)?.record };

  async function plan(name: string, record: TreeRecord): Promise<TreeRecord> {
    try {
      return await driver.plan!(record);
    } catch (error) {
      trees.delete(name);
      throw error;
    }
  }

  async function enqueue<T>(name: string, task: () => Promise<T>): Promise<T> {
    checkName(name);
    return queue.run(name, task);
  }
}

function checkName(name: string): void {
  if (typeof name !== 'string' || !NAME.test(name)) {
    throw new CayError('invalid_argument', `Not a name for a tree: "${String(name).slice(0, 80)}"`, {
      hint: 'Use 1 to 64 of the characters a-z, 0-9, "_" and "-"',
    });
  }
}

function taken(name: string, { kind, parent, source }: TreeRecord): CayError {
  const origin =
    kind === 'committed' ? `committed from "${source}"` : parent ? `from "${parent}"` : 'empty at first';
  return new CayError('already_exists', `Tree "${name}" exists already: ${kind}, ${origin}`);
}
