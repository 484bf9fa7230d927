/**
 * Compares what is recorded with what exists, when the engine opens.
 *
 * Each recorded sandbox is adopted if its processes are there, finished if an operation was under way, or
 * marked as ended; an incomplete snapshot is removed. Then everything of this installation that no record and
 * no pool accounts for is swept.
 */
import type { Limits } from '@cay/sdk/protocol';
import {
  adoptInstance,
  destroyInstance,
  destroyRemains,
  freezeInstance,
  isAlive,
  listInstances,
  restoreLimits,
  type Instance,
  type InstanceFacts,
} from '../../host/instances/instance.ts';
import { allowsRuntime } from '../../policy/allow-runtime.ts';
import type { Orphan } from '../backend.ts';
import { dropImage, dropNext } from './end-instance.ts';
import { setQuota, type Engine } from './engine.ts';
import { hostnameOf } from './hostname.ts';
import { poolKeyOf } from './pool.ts';
import { reapSnapshots } from './remove-snapshot.ts';
import type { SandboxRecord } from './sandbox-record.ts';
import { sweep } from './sweep.ts';
import { undoSnapshot } from './undo-snapshot.ts';
import { hibernateAgain } from './wake.ts';

/** An instance's directory; one whose facts were never written has only its name. */
type Found = InstanceFacts | { name: string };

/** How long a guest that was just revived may take to dial. */
const REVIVED_TIMEOUT_MS = 5_000;

/** Resolves what was swept. */
export async function reconcile(engine: Engine, { poolSize }: { poolSize: number }): Promise<Orphan[]> {
  const instances = new Map<string, Found>();
  for (const facts of await listInstances(engine.resources)) instances.set(facts.name, facts);

  // A sandbox that cannot be settled is settled by its next verb; it does not keep the others from starting.
  await Promise.all(
    [...engine.records.all.values()].map((record) => settle(engine, record, instances).catch(engine.onError)),
  );
  // After the sandboxes: the tree of an unfinished rollback depends on a snapshot.
  for (const snapshot of engine.snapshots.all.values()) {
    if (snapshot.state === 'taking') await undoSnapshot(engine, snapshot).catch(engine.onError);
  }
  await reapSnapshots(engine).catch(engine.onError);
  await refillFrom(engine, instances, poolSize);
  return sweep(engine, { alone: true });
}

/** Settles one sandbox. Its instance leaves `instances` if it is still needed. */
async function settle(engine: Engine, found: SandboxRecord, instances: Map<string, Found>): Promise<void> {
  const { resources, records } = engine;
  const record = await withoutNext(engine, found);
  const remains = () =>
    record.instance === undefined
      ? undefined
      : destroyRemains(resources, { name: record.instance, runtime: record.runtime });
  const facts = record.instance === undefined ? undefined : instances.get(record.instance);
  switch (record.phase) {
    case 'removing':
      await remains();
      await resources.trees.remove(record.tree);
      await dropImage(engine, record);
      return records.delete(record.id);
    case 'stopped':
    case 'failed':
      return;
    case 'hibernated':
      if (record.instance === undefined) return;
      await remains();
      return records.save({ ...record, instance: undefined });
    case 'starting':
    case 'ready':
      if (
        facts &&
        isWhole(facts) &&
        (record.phase === 'ready' || record.memory) &&
        (await isAlive(resources, facts))
      ) {
        const instance = await adopt(engine, facts, record);
        if (instance) {
          instances.delete(facts.name);
          engine.live.set(record.id, instance);
          engine.keepWatch(record.id, instance);
          return;
        }
      }
      await remains();
      return settleEnded(engine, record, facts);
  }
}

/** Settles a sandbox that should run and does not. */
async function settleEnded(engine: Engine, record: SandboxRecord, facts: Found | undefined): Promise<void> {
  const { resources, records } = engine;
  if (record.phase === 'starting' && record.incarnation === 1) {
    // The caller got no answer, and retries. Its memory, if any, is a snapshot's.
    await resources.trees.remove(record.tree);
    return records.delete(record.id);
  }
  if (record.phase === 'starting' && record.memory) return hibernateAgain(engine, record);
  if (record.phase === 'starting' || record.stopping) {
    const { stopping: _stopping, ...rest } = record;
    return records.save({ ...rest, phase: 'stopped', instance: undefined, frozen: false, memory: undefined });
  }
  // Facts are written before all else, and only a power loss takes them.
  const rebooted = facts && (!isWhole(facts) || facts.bootId !== resources.bootId);
  await records.save({
    ...record,
    phase: 'failed',
    instance: undefined,
    frozen: false,
    memory: undefined,
    reason: rebooted ? 'host_restarted' : 'crashed',
    message: rebooted
      ? 'The machine was restarted; the files are kept'
      : 'The sandbox ended while no server was running; the files are kept',
  });
}

/** Undoes a rollback that was not finished. */
async function withoutNext(engine: Engine, { next, ...record }: SandboxRecord): Promise<SandboxRecord> {
  if (!next) return record;
  await dropNext(engine, { ...record, next });
  await engine.records.save(record);
  return record;
}

/**
 * Takes up the instance of a sandbox, and puts back what a killed server was changing. Undefined if that
 * fails.
 */
async function adopt(
  engine: Engine,
  facts: InstanceFacts,
  record: SandboxRecord,
): Promise<Instance | undefined> {
  const instance = await takeUp(engine, facts, record.spec.limits, hostnameOf(record));
  if (!instance) return undefined;
  if (record.phase === 'starting') {
    // It was being revived. Only one that answers has been.
    if (!(await answers(instance, REVIVED_TIMEOUT_MS))) {
      await destroyInstance(engine.resources, instance);
      return undefined;
    }
  }
  if (engine.resources.cgroups.controllers.freezer)
    await freezeInstance(instance, record.frozen).catch(engine.onError);
  if (record.phase !== 'ready' || record.memory || record.stopping) {
    await engine.records.save({ ...record, phase: 'ready', memory: undefined, stopping: undefined });
    await dropImage(engine, record);
  }
  return instance;
}

async function takeUp(
  { resources, onError }: Engine,
  facts: InstanceFacts,
  limits: Limits,
  hostname?: string,
): Promise<Instance | undefined> {
  try {
    const instance = await adoptInstance(resources, facts, limits, hostname);
    // The sandbox may use more than its limits by now: it keeps running as it is.
    await restoreLimits(instance, limits).catch(onError);
    return instance;
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/** Takes up the warm instances that an earlier server kept, if they are what this one would make. */
async function refillFrom(engine: Engine, instances: Map<string, Found>, poolSize: number): Promise<void> {
  const { resources, pool, policy, usual } = engine;
  for (const facts of instances.values()) {
    if (pool.size >= poolSize) return;
    if (!isWhole(facts) || !facts.pooled || !(await isAlive(resources, facts))) continue;
    if (!allowsRuntime(policy, facts.runtime) || facts.openFiles !== usual.openFiles) continue;
    const instance = await takeUp(engine, facts, usual);
    if (!instance) continue;
    // The server that made it may have parked it.
    if (resources.cgroups.controllers.freezer) await freezeInstance(instance, false).catch(engine.onError);
    // The operator may have changed what sandboxes get.
    await setQuota(resources, facts.tree, usual);
    // A guest that does not answer soon is not waited for. Its instance is removed as an orphan.
    if (!(await answers(instance, 2000))) {
      await instance.link.close();
      continue;
    }
    instances.delete(facts.name);
    pool.add(instance, poolKeyOf(facts));
  }
}

function answers(instance: Instance, timeoutMs: number): Promise<boolean> {
  return instance.link.ready({ timeoutMs }).then(
    () => true,
    () => false,
  );
}

function isWhole(found: Found): found is InstanceFacts {
  return 'bootId' in found;
}
