/**
 * The memory backend with memory images: sandboxes hibernate, and snapshots keep processes. A process is a
 * command that never ends, so nothing is really kept, but no test above the contract can see that.
 */
import { CayError, type SandboxId, type SnapshotId } from '@cay/sdk/protocol';
import {
  abilityOf,
  type Backend,
  type Freezing,
  type Hibernating,
  type Observation,
  type Snapshotting,
} from '../../backends/backend.ts';

type Inner = Backend & Snapshotting & Freezing;

export function hibernatingBackend(inner: Inner): Inner & Hibernating {
  const hibernated = new Set<SandboxId>();
  const withMemory = new Set<SnapshotId>();
  const seen = (observed: Observation): Observation => {
    if (!hibernated.has(observed.id)) return observed;
    const { frozen: _, runtime: _runtime, ...rest } = observed;
    return { ...rest, phase: 'hibernated' };
  };
  const asleep = (id: SandboxId) => {
    if (hibernated.has(id))
      throw new CayError('failed_precondition', `Cannot use sandbox "${id}": it is hibernated`);
  };
  return {
    ...inner,
    async observe(id) {
      return seen(await inner.observe(id));
    },
    async list() {
      return (await inner.list()).map(seen);
    },
    async connect(id, options) {
      asleep(id);
      return inner.connect(id, options);
    },
    async stats(id, options) {
      asleep(id);
      return inner.stats(id, options);
    },
    async ensure(id, spec, options) {
      hibernated.delete(id);
      return inner.ensure(id, spec, options);
    },
    async stop(id, options) {
      hibernated.delete(id);
      return inner.stop(id, options);
    },
    async remove(id, options) {
      hibernated.delete(id);
      await inner.remove(id, options);
    },
    async hibernate(id) {
      const observed = await inner.observe(id);
      if (observed.phase !== 'ready')
        throw new CayError('failed_precondition', `Sandbox "${id}" is ${observed.phase}`);
      if (observed.frozen) await inner.thaw(id);
      hibernated.add(id);
      return seen(observed);
    },
    async snapshot(id, snapshot, { memory = false, ...options } = {}) {
      const { phase } = await inner.observe(id);
      if (memory && phase !== 'ready')
        throw new CayError('failed_precondition', `Sandbox "${id}" has no memory`);
      const facts = await inner.snapshot(id, snapshot, options);
      if (memory) withMemory.add(snapshot);
      return { ...facts, memory, ...(memory && { runtime: 'memory' }) };
    },
    ability(name) {
      const own = abilityOf({ freeze: this, snapshots: this, memorySnapshots: this }, name);
      return own ?? (Reflect.apply(inner.ability, this, [name]) as typeof own);
    },
    async clone(id, spec, snapshot, { memory = false, ...options } = {}) {
      if (memory && !withMemory.has(snapshot))
        throw new CayError('failed_precondition', `Snapshot "${snapshot}" has no memory`);
      const observed = await inner.clone(id, spec, snapshot, options);
      if (!memory || options.start) return observed;
      hibernated.add(id);
      return seen(observed);
    },
    async rollback(id, snapshot, { signal } = {}) {
      hibernated.delete(id);
      return inner.rollback(id, snapshot, { signal });
    },
  };
}
