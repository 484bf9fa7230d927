import { IdlePolicySchema, PAUSES, type IdlePolicy, type SandboxId } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { setTimeout as sleep } from 'node:timers/promises';
import { dueLevel } from './idle-policy.ts';
import { useControl } from '../testing/control-fixture.ts';
import { memoryBackend } from '../testing/test-control.ts';

const LOOK = { idleLookMs: 10 };
const SOME_LOOKS_MS = 120;
const HOUR = 3_600_000;

const fixture = useControl({ hibernates: true, ...LOOK });
const { me } = fixture;
const later = (ms: number) => void (fixture.opened.clock.nowMs += ms);
const create = (idle: Partial<IdlePolicy>) => fixture.create({ idle: IdlePolicySchema.parse(idle) });
const state = async (id: SandboxId) => {
  const { state: now, pausedAs } = await fixture.control.get(me(), id);
  return pausedAs ?? now;
};

describe('the level that is due', () => {
  const policy = fc.record({
    freezeAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    suspendAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    hibernateAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    archiveAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    destroyAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
  });
  const at = fc.constantFrom(null, ...PAUSES);

  it('is always deeper than the present one, and gets deeper with time', () => {
    const depth = (level: string | null | undefined) =>
      ['frozen', 'suspended', 'hibernated', 'archived', 'destroyed'].indexOf(level ?? '');
    fc.assert(
      fc.property(policy, at, fc.nat(120), fc.nat(120), (bounds, from, oneMs, moreMs) => {
        const now = dueLevel(bounds, oneMs, from);
        const then = dueLevel(bounds, oneMs + moreMs, from);
        if (now !== undefined) expect(depth(now)).toBeGreaterThan(depth(from));
        expect(depth(then)).toBeGreaterThanOrEqual(depth(now));
      }),
    );
  });

  it('is none without a policy', () => {
    expect(dueLevel(IdlePolicySchema.parse({}), 1e15, null)).toBeUndefined();
  });
});

describe('an unused sandbox', () => {
  it('is not idle while a client waits for something inside, which does not wake it', async () => {
    const id = await create({ freezeAfterMs: 1000 });
    const attended = await fixture.control.attend(me(), id);
    later(HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    attended[Symbol.dispose]();
    later(HOUR);
    await expect.poll(() => state(id)).toBe('frozen');
    using _ = await fixture.control.attend(me(), id);
    expect(await state(id)).toBe('frozen');
  });

  it('is paused deeper and deeper, as the policy says', async () => {
    const id = await create({
      freezeAfterMs: 60_000,
      hibernateAfterMs: HOUR,
      archiveAfterMs: 2 * HOUR,
      destroyAfterMs: 3 * HOUR,
    });
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    later(HOUR);
    await expect.poll(() => state(id)).toBe('hibernated');
    later(HOUR);
    await expect.poll(() => state(id)).toBe('archived');
    expect(fixture.place.archived()).toHaveLength(1);
    later(HOUR);
    await expect.poll(async () => (await fixture.control.list(me(), { limit: 10 })).sandboxes).toEqual([]);
    await expect.poll(() => fixture.place.archived()).toEqual([]);
  });

  it('is in use by a command, a client, a lease, and a detached command', async () => {
    const id = await create({ freezeAfterMs: 60_000 });
    const { guest } = await fixture.control.enter(me(), id);
    const exec = (name: string) =>
      guest.exec({ id: name, argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' });
    const waits = async () => {
      later(120_000);
      await sleep(SOME_LOOKS_MS);
      expect(await state(id)).toBe('active');
    };
    const command = await exec('one');
    await waits();
    await command[Symbol.asyncDispose]();
    await waits();
    await guest.signal('one', 'SIGKILL');
    const watching = (await guest.files('user').watch('/home/user'))[Symbol.asyncIterator]();
    void watching.next().catch(() => {});
    await waits();
    await watching.return?.();
    await fixture.control.lease(me(), id, { forMs: 200_000 });
    await waits();
    later(200_000);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('is in use while it takes processor time', async () => {
    const id = await create({ freezeAfterMs: 60_000 });
    let cpuUsageMs = 0;
    const { stats } = fixture.memory;
    let busy = true;
    fixture.backend.stats = async (...given) => {
      const reading = await stats(...given);
      if (busy) cpuUsageMs += 1000;
      return { ...reading, cpuUsageMs };
    };
    later(120_000);
    await sleep(SOME_LOOKS_MS);
    later(120_000);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    busy = false;
    later(120_000);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('takes the nearest lighter level where one is missing, and stays there', async () => {
    await fixture.control.close();
    const memory = memoryBackend();
    await fixture.reopen(memory);
    const id = await create({ hibernateAfterMs: 60_000 });
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    let frozen = 0;
    const { freeze } = fixture.memory;
    fixture.memory.freeze = (...given) => {
      frozen++;
      return freeze(...given);
    };
    later(HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('frozen');
    expect(frozen).toBe(0);
  });

  it('is retried after a while, and not at every check, if it cannot be paused', async () => {
    let tries = 0;
    const { freeze } = fixture.memory;
    fixture.backend.stats = fixture.memory.stats;
    Object.assign(fixture.backend, {
      async freeze(id: SandboxId) {
        if (tries++ === 0) throw new Error('not now');
        await freeze(id);
      },
    });
    const id = await create({ freezeAfterMs: 60_000 });
    later(60_000);
    await expect.poll(() => fixture.opened.errors).toHaveLength(1);
    await sleep(SOME_LOOKS_MS);
    expect(tries).toBe(1);
    expect(await state(id)).toBe('active');
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    fixture.opened.errors.length = 0;
  });

  it('stays idle over a restart of the server', async () => {
    const id = await create({ freezeAfterMs: HOUR });
    later(HOUR / 2);
    await (await fixture.control.enter(me(), id)).guest.commands();
    const { usedAtMs } = await fixture.control.get(me(), id);
    // The last use is recorded when a server closes; this one is killed.
    fixture.opened.sql('UPDATE sandboxes SET used_at = ?', usedAtMs);
    await fixture.opened.kill();
    fixture.opened.errors.length = 0;
    await fixture.reopen();
    expect((await fixture.control.get(me(), id)).usedAtMs).toBe(usedAtMs);
    later(HOUR / 2);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    later(HOUR / 2);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('without a policy is never checked', async () => {
    let looks = 0;
    const { stats } = fixture.memory;
    fixture.backend.stats = (...given) => {
      looks++;
      return stats(...given);
    };
    const id = await create({});
    later(1000 * HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(looks).toBe(0);
    await fixture.control.update(me(), id, { idle: IdlePolicySchema.parse({ freezeAfterMs: 1000 }) });
    await expect.poll(() => state(id)).toBe('frozen');
  });
});
