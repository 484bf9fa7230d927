import { IdlePolicySchema, PAUSES, type IdlePolicy, type SandboxId } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Control } from '../open-control.ts';
import { dueRung } from './idle-policy.ts';
import { hibernatingBackend } from '../testing/hibernating-backend.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from '../testing/test-control.ts';

const LOOK = { idleLookMs: 10 };
const SOME_LOOKS_MS = 120;
const HOUR = 3_600_000;

let place: Installation;
let memory: MemoryBackend;
let backend: ReturnType<typeof hibernatingBackend>;
let opened: TestControl;
let control: Control;
beforeEach(async () => {
  place = installation();
  memory = memoryBackend();
  backend = hibernatingBackend(memory);
  opened = await place.open(backend, LOOK);
  control = opened.control;
});
afterEach(async () => {
  await control.close();
  expect(opened.errors).toEqual([]);
  place.remove();
});

const me = () => opened.principal;
const later = (ms: number) => void (opened.clock.nowMs += ms);
const create = async (idle: Partial<IdlePolicy>): Promise<SandboxId> =>
  (await control.create(me(), asked({ idle: IdlePolicySchema.parse(idle) }))).sandbox.id;
const state = (id: SandboxId) => {
  const { state: now, pausedAs } = control.get(me(), id);
  return pausedAs ?? now;
};

describe('the rung that is due', () => {
  const policy = fc.record({
    freezeAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    suspendAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    hibernateAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    archiveAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
    destroyAfterMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: null }),
  });
  const at = fc.constantFrom(null, ...PAUSES);

  it('only ever lies below, and only gets deeper with time', () => {
    const depth = (rung: string | null | undefined) =>
      ['frozen', 'suspended', 'hibernated', 'archived', 'destroyed'].indexOf(rung ?? '');
    fc.assert(
      fc.property(policy, at, fc.nat(120), fc.nat(120), (bounds, from, oneMs, moreMs) => {
        const now = dueRung(bounds, oneMs, from);
        const then = dueRung(bounds, oneMs + moreMs, from);
        if (now !== undefined) expect(depth(now)).toBeGreaterThan(depth(from));
        expect(depth(then)).toBeGreaterThanOrEqual(depth(now));
      }),
    );
  });

  it('is none without a policy', () => {
    expect(dueRung(IdlePolicySchema.parse({}), 1e15, null)).toBeUndefined();
  });
});

describe('a sandbox that nobody uses', () => {
  it('is not idle while somebody waits for something inside, and is not woken by that', async () => {
    const id = await create({ freezeAfterMs: 1000 });
    const attended = control.attend(me(), id);
    later(HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(state(id)).toBe('active');
    attended[Symbol.dispose]();
    later(HOUR);
    await expect.poll(() => state(id)).toBe('frozen');
    using _ = control.attend(me(), id);
    expect(state(id)).toBe('frozen');
  });

  it('goes down the ladder step by step', async () => {
    const id = await create({
      freezeAfterMs: 60_000,
      hibernateAfterMs: HOUR,
      archiveAfterMs: 2 * HOUR,
      destroyAfterMs: 3 * HOUR,
    });
    await sleep(SOME_LOOKS_MS);
    expect(state(id)).toBe('active');
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    later(HOUR);
    await expect.poll(() => state(id)).toBe('hibernated');
    later(HOUR);
    await expect.poll(() => state(id)).toBe('archived');
    expect(place.archived()).toHaveLength(1);
    later(HOUR);
    await expect.poll(() => control.list(me(), { limit: 10 }).sandboxes).toEqual([]);
    await expect.poll(() => place.archived()).toEqual([]);
  });

  it('is used by a command, a client, a lease, and a command that nobody waits for', async () => {
    const id = await create({ freezeAfterMs: 60_000 });
    const { guest } = await control.enter(me(), id);
    const exec = (name: string) =>
      guest.exec({ id: name, argv: ['sleep', '1000'], env: {}, workdir: '/', user: 'user' });
    const waits = async () => {
      later(120_000);
      await sleep(SOME_LOOKS_MS);
      expect(state(id)).toBe('active');
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
    await control.lease(me(), id, { forMs: 200_000 });
    await waits();
    later(200_000);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('is used by what takes processor time', async () => {
    const id = await create({ freezeAfterMs: 60_000 });
    let cpuUsageMs = 0;
    const { stats } = memory;
    let busy = true;
    backend.stats = async (...given) => {
      const reading = await stats(...given);
      if (busy) cpuUsageMs += 1000;
      return { ...reading, cpuUsageMs };
    };
    later(120_000);
    await sleep(SOME_LOOKS_MS);
    later(120_000);
    await sleep(SOME_LOOKS_MS);
    expect(state(id)).toBe('active');
    busy = false;
    later(120_000);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('takes the nearest rung where one is missing, and is left in peace there', async () => {
    await control.close();
    memory = memoryBackend();
    opened = await place.open(memory, LOOK);
    control = opened.control;
    const id = await create({ hibernateAfterMs: 60_000 });
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    let frozen = 0;
    const { freeze } = memory;
    memory.freeze = (...given) => {
      frozen++;
      return freeze(...given);
    };
    later(HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(state(id)).toBe('frozen');
    expect(frozen).toBe(0);
  });

  it('is tried again a while later, and not at every look, if it cannot be paused now', async () => {
    let tries = 0;
    const { freeze } = memory;
    backend.stats = memory.stats;
    Object.assign(backend, {
      async freeze(id: SandboxId) {
        if (tries++ === 0) throw new Error('not now');
        await freeze(id);
      },
    });
    const id = await create({ freezeAfterMs: 60_000 });
    later(60_000);
    await expect.poll(() => opened.errors).toHaveLength(1);
    await sleep(SOME_LOOKS_MS);
    expect(tries).toBe(1);
    expect(state(id)).toBe('active');
    later(60_000);
    await expect.poll(() => state(id)).toBe('frozen');
    opened.errors.length = 0;
  });

  it('stays idle over a restart of the server', async () => {
    const id = await create({ freezeAfterMs: HOUR });
    later(HOUR / 2);
    await (await control.enter(me(), id)).guest.commands();
    const { usedAtMs } = control.get(me(), id);
    // What was not saved yet is saved when the server ends.
    opened.database.run('UPDATE sandboxes SET used_at = ?', usedAtMs);
    opened.kill();
    opened.errors.length = 0;
    opened = await place.open(hibernatingBackend(memory), LOOK);
    control = opened.control;
    expect(control.get(me(), id).usedAtMs).toBe(usedAtMs);
    later(HOUR / 2);
    await sleep(SOME_LOOKS_MS);
    expect(state(id)).toBe('active');
    later(HOUR / 2);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('without a policy is never looked at', async () => {
    let looks = 0;
    const { stats } = memory;
    backend.stats = (...given) => {
      looks++;
      return stats(...given);
    };
    const id = await create({});
    later(1000 * HOUR);
    await sleep(SOME_LOOKS_MS);
    expect(looks).toBe(0);
    await control.update(me(), id, { idle: IdlePolicySchema.parse({ freezeAfterMs: 1000 }) });
    await expect.poll(() => state(id)).toBe('frozen');
  });
});
