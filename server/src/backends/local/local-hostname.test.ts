/** What a sandbox calls itself, however it came to run. */
import { newId } from '@cay/sdk/protocol';
import { afterEach, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../../../../test/support/local-platform.ts';
import { localWorld, type LocalWorld } from './testing/local-world.ts';

const reason = whyNoLocal();
const HOSTNAME = 'cat /proc/sys/kernel/hostname';

describe.skipIf(reason !== undefined)(`hostnames${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let world: LocalWorld;
  afterEach(() => world.destroy());

  for (const runtime of ['runsc', 'runc']) {
    it(`${runtime}: the name, or the id without a name, cold and from the warm pool`, async () => {
      world = await localWorld({ runtime });
      for (const poolSize of [0, 2]) {
        const backend = await world.open({ poolSize });
        await backend.warm();
        const [named, nameless] = [newId('sbx'), newId('sbx')];
        await backend.ensure(named, world.spec, { name: 'my-box' });
        await backend.ensure(nameless, world.spec);
        expect(await world.run(backend, named, HOSTNAME)).toBe('my-box');
        expect(await world.run(backend, nameless, HOSTNAME)).toBe(nameless.replace('_', '-'));
        await backend.close();
      }
    }, 60_000);

    it(`${runtime}: stopped and started, rolled back, cloned, and after another server has started`, async () => {
      world = await localWorld({ runtime });
      const first = await world.open({ poolSize: 1 });
      await first.warm();
      const id = newId('sbx');
      await first.ensure(id, world.spec, { name: 'origin' });
      const snapshot = newId('snap');
      await first.snapshot(id, snapshot);
      await first.close();

      const backend = await world.open();
      expect(await world.run(backend, id, HOSTNAME)).toBe('origin');
      await backend.stop(id, { graceMs: 0 });
      await backend.ensure(id, world.spec);
      expect(await world.run(backend, id, HOSTNAME)).toBe('origin');
      await backend.rollback(id, snapshot);
      expect(await world.run(backend, id, HOSTNAME)).toBe('origin');
      const child = newId('sbx');
      await backend.clone(child, world.spec, snapshot, { start: true, name: 'child' });
      expect(await world.run(backend, child, HOSTNAME)).toBe('child');
    }, 60_000);
  }

  it('runsc: forked with its memory, hibernated and woken', async () => {
    world = await localWorld({ runtime: 'runsc' });
    const backend = await world.open();
    const [id, child, later] = [newId('sbx'), newId('sbx'), newId('sbx')];
    await backend.ensure(id, world.spec, { name: 'origin' });
    const snapshot = newId('snap');
    await backend.snapshot(id, snapshot, { memory: true });
    await backend.clone(child, world.spec, snapshot, { memory: true, start: true, name: 'child' });
    await backend.clone(later, world.spec, snapshot, { memory: true });
    await backend.ensure(later, world.spec);
    await backend.hibernate(id);
    await backend.ensure(id, world.spec);
    await backend.rollback(child, snapshot, { memory: true });
    expect(await world.run(backend, id, HOSTNAME)).toBe('origin');
    expect(await world.run(backend, child, HOSTNAME)).toBe('child');
    expect(await world.run(backend, later, HOSTNAME)).toBe(later.replace('_', '-'));
  }, 60_000);
});
