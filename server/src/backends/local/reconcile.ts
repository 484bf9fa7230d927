/**
 * Compares what is recorded with what exists, when the engine opens.
 *
 * Each recorded sandbox is adopted if its processes are there, finished if a deed was under way,
 * or marked as ended. Then everything of this installation that no record and no pool answers for
 * is swept: instances, containers, cgroups and trees. Names below our own directories and our own
 * cgroup are the proof that a thing is ours; nothing else is ever looked at.
 */
import type { Limits, SandboxId } from '@cay/sdk/protocol';
import type { Ground } from '../../host/instances/ground.ts';
import {
  adoptInstance,
  destroyRemains,
  isAlive,
  listInstances,
  restoreLimits,
  type Instance,
  type InstanceFacts,
} from '../../host/instances/instance.ts';
import { poolKeyOf, type Pool } from './pool.ts';
import type { SandboxRecord, SandboxRecords } from './sandbox-record.ts';

/** An instance's directory; one whose facts were never written has only its name. */
type Found = InstanceFacts | { name: string };

export interface ReconcileOptions {
  ground: Ground;
  records: SandboxRecords;
  pool: Pool;
  poolSize: number;
  defaultLimits: Limits;
  onError(error: unknown): void;
  /** Called for every sandbox that runs. */
  take(id: SandboxId, instance: Instance): void;
}

export async function reconcile(options: ReconcileOptions): Promise<void> {
  const { ground, records } = options;
  const instances = new Map<string, Found>();
  for (const facts of await listInstances(ground)) instances.set(facts.name, facts);

  // One that cannot be settled is settled by the next verb for it; it keeps nobody else from starting.
  await Promise.all([...records.all.values()].map((record) => settle(options, record, instances).catch(options.onError)));
  await refillFrom(options, instances);
  await sweep(options, instances);
}

/** Brings one sandbox to rest. Its instance leaves `instances` if it is still needed. */
async function settle(options: ReconcileOptions, record: SandboxRecord, instances: Map<string, Found>): Promise<void> {
  const { ground, records } = options;
  const facts = record.instance === undefined ? undefined : instances.get(record.instance);
  if (record.phase === 'removing') {
    if (record.instance) await destroyRemains(ground, { name: record.instance, runtime: record.runtime });
    await ground.trees.remove(record.tree);
    await records.delete(record.id);
    return;
  }
  if (record.phase === 'stopped' || record.phase === 'failed') return;
  if (record.phase === 'ready' && facts && isWhole(facts) && (await isAlive(ground, facts))) {
    const instance = await adopt(options, facts, record.spec.limits);
    if (instance) {
      instances.delete(facts.name);
      options.take(record.id, instance);
      return;
    }
  }
  if (record.instance) await destroyRemains(ground, { name: record.instance, runtime: record.runtime });
  if (record.phase === 'starting' && record.incarnation === 1) {
    // Nobody was told that it exists. Whoever asked for it asks again.
    await ground.trees.remove(record.tree);
    await records.delete(record.id);
    return;
  }
  const rebooted = facts && isWhole(facts) && facts.bootId !== ground.bootId;
  await records.save({
    ...record,
    phase: 'failed',
    instance: undefined,
    reason: rebooted ? 'host_restarted' : 'crashed',
    message: rebooted
      ? 'The machine was restarted; the files are kept'
      : 'The sandbox ended while no server was running; the files are kept',
  });
}

/** What a server that died was changing is as recorded again. Nothing if it cannot be taken up. */
async function adopt({ ground, onError }: ReconcileOptions, facts: InstanceFacts, limits: Limits): Promise<Instance | undefined> {
  try {
    const instance = await adoptInstance(ground, facts, limits);
    // More may be in use than was allowed before: it goes on with what it has.
    await restoreLimits(instance, limits).catch(onError);
    return instance;
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/** Takes up the warm instances that an earlier server kept. */
async function refillFrom(options: ReconcileOptions, instances: Map<string, Found>): Promise<void> {
  const { ground, pool } = options;
  for (const facts of instances.values()) {
    if (pool.size >= options.poolSize) return;
    if (!isWhole(facts) || !facts.pooled || !(await isAlive(ground, facts))) continue;
    const instance = await adopt(options, facts, options.defaultLimits);
    if (!instance) continue;
    // One that does not answer is not worth waiting for: it goes the way of the others.
    const answered = await instance.link.ready({ timeoutMs: 2000 }).then(
      () => true,
      () => false,
    );
    if (!answered) {
      await instance.link.close();
      continue;
    }
    instances.delete(facts.name);
    pool.add(instance, poolKeyOf(facts));
  }
}

async function sweep(options: ReconcileOptions, orphans: Map<string, Found>): Promise<void> {
  const { ground, records, pool, onError } = options;
  const inUse = new Set(pool.names());
  for (const record of records.all.values()) if (record.instance) inUse.add(record.instance);

  // A sandbox that could not be settled keeps its instance: its record still answers for it.
  const strays = [...orphans.values()].filter(({ name }) => !inUse.has(name));
  await Promise.all(strays.map((facts) => destroyRemains(ground, { runtime: 'none', ...facts }).catch(onError)));
  for (const runtime of ground.runtimes.values()) {
    for (const name of await runtime.list()) {
      if (!inUse.has(name)) await runtime.remove(name, ground.cgroups.group(name)).catch(onError);
    }
  }
  for (const name of await ground.cgroups.list()) if (!inUse.has(name)) await ground.cgroups.group(name).remove().catch(onError);

  const trees = new Set([...records.all.values()].map((record) => record.tree));
  for (const name of pool.names()) trees.add(name);
  for (const tree of await ground.trees.list()) {
    if (tree.kind !== 'active' || !tree.name.startsWith('i-') || trees.has(tree.name)) continue;
    await ground.trees.remove(tree.name).catch(onError);
  }
}

function isWhole(found: Found): found is InstanceFacts {
  return 'bootId' in found;
}
