/**
 * The part of a Snapshotter that is the same on every filesystem: names, idempotency, the order of records
 * and operations, which trees can be removed, and recovery after a crash. A driver provides a `TreeDriver`,
 * which only performs the operations.
 */
import { CayError } from '@cay/sdk/protocol';
import { resourceError } from '../resource-error.ts';
import { committedTree, compareCommitted } from './compare-committed.ts';
import { checkName, openKnownTrees, type KnownTreesOptions } from './known-trees.ts';
import type { TreeRecord } from './records.ts';
import type { Snapshotter } from './snapshotter.ts';

export interface Forest {
  /** The verbs of the Snapshotter that are the same for all drivers. */
  trees: Omit<Snapshotter, 'name' | 'capabilities' | 'space' | 'close' | 'destroy'>;
  record(name: string): TreeRecord | undefined;
}

export interface ForestOptions extends KnownTreesOptions {
  /** The driver's name, and whether it enforces quotas. */
  driverName: string;
  quota: boolean;
}

export async function openForest(options: ForestOptions): Promise<Forest> {
  const { driver } = options;
  const trees = await openKnownTrees(options);
  const on = { driver, trees };

  const verbs: Forest['trees'] = {
    async prepare(key, { parent, quotaBytes } = {}) {
      checkName(key);
      checkQuota(quotaBytes, options);
      if (parent !== undefined) {
        checkName(parent);
        // Waits for a parent that is being committed.
        await trees.enqueue(parent, async () => {});
      }
      return trees.enqueue(key, async () => {
        const tree = trees.all.get(key);
        if (tree) {
          if (tree.record.kind !== 'active' || tree.record.parent !== parent) throw taken(key, tree.record);
          if (quotaBytes !== undefined && quotaBytes !== (tree.record.quotaBytes ?? null)) {
            await trees.setQuota(key, tree, quotaBytes);
          }
          return driver.path(key, tree.record);
        }
        const from = parent === undefined ? undefined : trees.all.get(parent);
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
        const made = await trees.grow('prepare', key, record, (planned) => driver.make(key, planned));
        return driver.path(key, made);
      });
    },

    path(key) {
      return trees.enqueue(key, () => driver.path(key, trees.active(key).record));
    },

    commit(name, key) {
      return trees.enqueue(name, async () => {
        checkName(key);
        const there = trees.all.get(name);
        if (there) {
          if (there.record.kind === 'committed' && there.record.source === key) return;
          throw taken(name, there.record);
        }
        // The name is free and the key is not, so two commits cannot deadlock.
        if (trees.all.get(key)?.state !== 'coming') trees.active(key);
        await trees.enqueue(key, async () => {
          const { parent } = trees.active(key).record;
          const record: TreeRecord = {
            kind: 'committed',
            source: key,
            ...(parent !== undefined && { parent }),
          };
          await trees.grow('commit', name, record, (planned) => driver.copy(name, key, planned));
        });
      });
    },

    committedPath: async (name) => (await committedTree(on, name)).path,

    async *changes(from, to, { signal } = {}) {
      signal?.throwIfAborted();
      yield* await compareCommitted(on, [from, to], signal);
    },

    async setQuota(key, quotaBytes) {
      checkQuota(quotaBytes, options);
      await trees.enqueue(key, () => trees.setQuota(key, trees.active(key), quotaBytes));
    },

    async written(key) {
      checkName(key);
      const { record } = trees.active(key);
      return driver.written?.(key, record);
    },

    async usage(name) {
      checkName(name);
      const tree = trees.all.get(name);
      if (tree?.state !== 'here')
        throw resourceError('not_found', { kind: 'tree', name }, (named) => `Cannot find ${named}`);
      return driver.usage(name, tree.record);
    },

    remove(name) {
      return trees.enqueue(name, async () => {
        const tree = trees.all.get(name);
        if (!tree) return;
        const child = [...trees.all].find(([, { record }]) => record.parent === name)?.[0];
        if (child !== undefined) {
          throw resourceError(
            'failed_precondition',
            { kind: 'tree', name },
            (named) => `Cannot remove ${named}: another tree descends from it`,
            { details: { child } },
          );
        }
        await trees.remove(name, tree);
      });
    },

    async list() {
      return [...trees.all]
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
  return { trees: verbs, record: (name) => trees.all.get(name)?.record };
}

function checkQuota(
  quotaBytes: number | null | undefined,
  { quota, driverName }: Pick<ForestOptions, 'quota' | 'driverName'>,
): void {
  if (quotaBytes === undefined || quotaBytes === null) return;
  if (!Number.isSafeInteger(quotaBytes) || quotaBytes < 1) {
    throw new CayError(
      'invalid_argument',
      `Cannot limit a tree to "${quotaBytes}" bytes: not a positive whole number`,
    );
  }
  if (!quota) {
    throw new CayError(
      'unsupported',
      `Cannot limit a tree to ${quotaBytes} bytes: "${driverName}" here has no quotas`,
    );
  }
}

function taken(name: string, { kind, parent, source }: TreeRecord): CayError {
  const origin =
    kind === 'committed' ? `committed from "${source}"` : parent ? `from "${parent}"` : 'empty at first';
  return new CayError('already_exists', `Tree "${name}" exists already: ${kind}, ${origin}`);
}
