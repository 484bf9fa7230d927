/**
 * Finds orphans on this machine and removes them: what no record, no pool and no operation under way names.
 *
 * Only names below the installation's own directories and its own cgroup are looked at. While other calls
 * run, a thing is an orphan only if it is found twice, a moment apart: something that passes from one owner
 * to another has an owner again by then. Names are never used again, so an orphan stays an orphan.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { destroyRemains, listInstances } from '../../host/instances/instance.ts';
import { openClock } from '../../lib/clock.ts';
import type { Orphan } from '../backend.ts';
import type { Engine } from './engine.ts';
import { reapable } from './remove-snapshot.ts';
import { undoSnapshot } from './undo-snapshot.ts';

export interface SweepOptions {
  /** Reports orphans and removes none. */
  dryRun?: boolean;
  /** True while the backend opens: no other call is under way. */
  alone?: boolean;
}

interface Lost extends Orphan {
  remove(): Promise<void>;
}

const APART_MS = 100;
/** A record is written in far less; a temporary file that is older was left. */
const STALE_MS = 60_000;
const clock = openClock();

export async function sweep(
  engine: Engine,
  { dryRun = false, alone = false }: SweepOptions = {},
): Promise<Orphan[]> {
  let lost = await look(engine, alone);
  if (lost.length > 0 && !alone) {
    const before = new Set(lost.map(keyOf));
    await sleep(APART_MS);
    lost = (await look(engine, alone)).filter((one) => before.has(keyOf(one)));
  }
  if (!dryRun) {
    // What runs on a tree goes before the tree.
    const [running, resting] = [
      lost.filter(({ kind }) => kind === 'instance'),
      lost.filter(({ kind }) => kind !== 'instance'),
    ];
    await Promise.all(running.map((one) => one.remove().catch(engine.onError)));
    for (const one of resting) await one.remove().catch(engine.onError);
  }
  return lost.map(({ kind, name }) => ({ kind, name }));
}

async function look(engine: Engine, alone: boolean): Promise<Lost[]> {
  const { resources, images } = engine;
  // What exists is read first: what is made after that is not in the list, and whatever is in use by then is
  // spared.
  const [instances, groups, trees, kept, temporary] = await Promise.all([
    listInstances(resources),
    resources.cgroups.list(),
    resources.trees.list(),
    images.list(),
    temporaryFiles(engine, alone),
  ]);
  const containers = await Promise.all(
    [...resources.runtimes.values()].map(async (runtime) => ({ runtime, names: await runtime.list() })),
  );
  const volumeTrees = (await engine.volumes?.orphans()) ?? [];
  const used = inUse(engine);
  const free = (name: string) => !used.has(name) && !engine.held.has(name);

  const lost: Lost[] = [];
  const found = (kind: Orphan['kind'], name: string, remove: () => Promise<void>) =>
    void (free(name) && lost.push({ kind, name, remove }));
  const whole = new Set(instances.map(({ name }) => name));
  // A runtime that is being probed has a container and a cgroup too.
  const isOrphan = (name: string) => !whole.has(name) && (alone || name.startsWith('i-'));
  for (const facts of instances)
    found('instance', facts.name, () => destroyRemains(resources, { runtime: 'none', ...facts }));
  for (const { runtime, names } of containers) {
    for (const name of names)
      if (isOrphan(name)) found('container', name, () => runtime.remove(name, resources.cgroups.group(name)));
  }
  for (const name of groups)
    if (isOrphan(name)) found('cgroup', name, () => resources.cgroups.group(name).remove());
  for (const { name, kind } of trees) {
    if (kind === 'active' && name.startsWith('i-')) found('tree', name, () => resources.trees.remove(name));
    if (kind === 'committed' && name.startsWith('s-'))
      found('snapshot_tree', name, () => resources.trees.remove(name));
  }
  for (const name of volumeTrees) found('volume_tree', name, () => resources.trees.remove(name));
  for (const name of kept) found('image', name, () => images.remove(name));
  const taking = [...engine.snapshots.all.values()].filter(({ state }) => state === 'taking');
  for (const snapshot of [...taking, ...reapable(engine, trees)])
    found('snapshot', snapshot.id, () => undoSnapshot(engine, snapshot));
  for (const path of temporary) found('temporary_file', path, () => rm(path, { force: true }));
  return lost;
}

function inUse({ records, snapshots, pool, spares }: Engine): Set<string> {
  const used = new Set<string>([...pool.names(), ...spares.names()]);
  for (const { instance, tree, memory, next } of records.all.values()) {
    for (const name of [instance, tree, memory?.image, next?.instance, next?.tree])
      if (name !== undefined) used.add(name);
  }
  for (const { tree, memory } of snapshots.all.values()) {
    used.add(tree);
    if (memory) used.add(memory.image);
  }
  return used;
}

/** Temporary files of interrupted writes. A young one may belong to a write that is under way. */
async function temporaryFiles({ records, snapshots }: Engine, alone: boolean): Promise<string[]> {
  const found: string[] = [];
  for (const dir of [records.dir, snapshots.dir]) {
    for (const name of await readdir(dir)) {
      if (!name.endsWith('.tmp')) continue;
      const path = join(dir, name);
      const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
      if (alone || clock.ageing() - mtimeMs > STALE_MS) found.push(path);
    }
  }
  return found;
}

const keyOf = ({ kind, name }: Orphan) => `${kind} ${name}`;
