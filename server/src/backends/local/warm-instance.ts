import { destroyInstance, startInstance, type Instance } from '../../host/instances/instance.ts';
import type { Engine } from './engine.ts';
import { cloneTemplate, plan } from './plan.ts';
import { poolKeyOf, type PoolKey } from './pool.ts';
import { rehearse } from './rehearse.ts';

/** Makes an instance that nobody has asked for yet. */
export async function makeWarmInstance(
  engine: Engine,
  template: string,
): Promise<{ instance: Instance; key: PoolKey }> {
  const { ground, usual } = engine;
  const facts = await plan(engine, { template }, { pooled: true });
  const hold = engine.held.hold(facts.name);
  let instance: Instance | undefined;
  try {
    await cloneTemplate(engine, facts, usual);
    instance = await startInstance(ground, facts, usual);
    await rehearse(instance);
    return { instance, key: poolKeyOf(facts) };
  } catch (error) {
    if (instance) await destroyInstance(ground, instance);
    await ground.trees.remove(facts.tree);
    throw error;
  } finally {
    hold.release();
  }
}

/** Takes away an instance that nobody has had. */
export async function discardInstance({ ground, held }: Engine, instance: Instance): Promise<void> {
  const hold = held.hold(instance.facts.name, instance.facts.tree);
  try {
    await destroyInstance(ground, instance);
    await ground.trees.remove(instance.facts.tree);
  } finally {
    hold.release();
  }
}
