/** A server that starts while another one, on the same records and backend, makes things. */
import { describe, expect, it } from 'vitest';
import { abilityOf, type Backend } from '../../backends/backend.ts';
import { useControl, type ControlFixture } from '../testing/control-fixture.ts';

describe('a server that starts beside another one', () => {
  const fixture = useControl();

  /** What the backend is asked for first is from before anything was made. */
  function late(): ControlFixture['backend'] {
    const { memory } = fixture;
    const asked = new Set<string>();
    const isFirst = (verb: string) => !asked.has(verb) && Boolean(asked.add(verb));
    const snapshots = async () => (isFirst('snapshots') ? [] : memory.snapshots());
    return new Proxy(memory, {
      get(target, name) {
        if (name === 'list') return async () => (isFirst('list') ? [] : target.list());
        if (name === 'snapshots') return snapshots;
        if (name !== 'ability') return Reflect.get(target, name) as unknown;
        const ability: Backend['ability'] = (wanted) =>
          wanted === 'snapshots'
            ? abilityOf({ snapshots: { ...memory, snapshots } }, wanted)
            : target.ability(wanted);
        return ability;
      },
    });
  }

  it('does not take for lost what was made after it had asked the backend', async () => {
    const id = await fixture.createWithText('one');
    const { id: snapshot } = await fixture.control.snapshot(fixture.me(), id, {});
    await fixture.opened.kill();
    await fixture.reopen(late());
    expect((await fixture.control.get(fixture.me(), id)).state).toBe('active');
    expect((await fixture.listed()).map((one) => one.id)).toEqual([snapshot]);
    expect(await fixture.read(id)).toBe('one');
    const types = (await fixture.opened.events.list({})).map(({ type }) => type);
    expect(types).not.toContain('sandbox.failed');
    expect(types).not.toContain('snapshot.lost');
  });
});
