import { putTrustFiles } from '../../guest/trust-files.ts';
import { destroyInstance, startInstance, type Instance } from '../../host/instances/instance.ts';
import type { Engine } from './engine.ts';
import { cloneTemplate, plan } from './plan.ts';
import { poolKeyOf, type PoolKey } from './pool.ts';
import { warmUp } from './warm-up.ts';

/** Makes an instance for the warm pool. One that a caller waits for already is not warmed up first. */
export async function makeWarmInstance(
  engine: Engine,
  template: string,
  isAwaited: () => boolean,
): Promise<{ instance: Instance; key: PoolKey }> {
  const { resources, usual } = engine;
  const facts = await plan(engine, { template }, { pooled: true });
  const hold = engine.held.hold(facts.name);
  let instance: Instance | undefined;
  try {
    await cloneTemplate(engine, facts, usual);
    instance = await startInstance(resources, facts, usual);
    if (!isAwaited()) await warmUp(instance);
    // The first command of a sandbox would wait for these files. If they cannot be written now, it tries
    // again.
    const certificate = resources.egress?.certificate;
    if (certificate !== undefined && !isAwaited())
      await putTrustFiles(instance.link.guest.files('root'), certificate).catch(engine.onError);
    return { instance, key: poolKeyOf(facts) };
  } catch (error) {
    if (instance) await destroyInstance(resources, instance);
    await resources.trees.remove(facts.tree);
    throw error;
  } finally {
    hold.release();
  }
}

/** Destroys an instance of the warm pool that no sandbox has had. */
export async function discardInstance({ resources, held }: Engine, instance: Instance): Promise<void> {
  const hold = held.hold(instance.facts.name, instance.facts.tree);
  try {
    await destroyInstance(resources, instance);
    await resources.trees.remove(instance.facts.tree);
  } finally {
    hold.release();
  }
}
