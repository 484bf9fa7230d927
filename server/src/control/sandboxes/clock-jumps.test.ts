/** The wall clock is set forward and back. Timeouts stay as they are, idleness and age go by elapsed time. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { IdlePolicySchema, ListSnapshotsSchema, RetentionSchema, type SandboxId } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { sandboxRow } from '../../../../test/conformance/records-rows.ts';
import { openRecords } from '../../records/open-records.ts';
import { useControl } from '../testing/control-fixture.ts';
import { startDispatch } from '../events/webhooks/dispatch.ts';

const SOME_LOOKS_MS = 120;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const fixture = useControl({ hibernates: true, idleLookMs: 10 });
const { create } = fixture;

const later = (ms: number) => void (fixture.opened.clock.nowMs += ms);
function jump(ms: number): void {
  fixture.opened.clock.nowMs += ms;
  fixture.opened.clock.jumpedMs += ms;
}
const state = async (id: SandboxId) => {
  const { state: now, pausedAs } = await fixture.control.get(fixture.me(), id);
  return pausedAs ?? now;
};
const idle = { idle: IdlePolicySchema.parse({ freezeAfterMs: 10 * MINUTE, destroyAfterMs: 2 * HOUR }) };

describe.each([
  ['forward', DAY],
  ['back', -DAY],
])('a clock that is set %s', (_, by) => {
  it('makes no sandbox idle, and none busy', async () => {
    const id = await create(idle);
    later(9 * MINUTE);
    jump(by);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    later(MINUTE);
    await expect.poll(() => state(id)).toBe('frozen');
    later(2 * HOUR);
    await expect
      .poll(async () => (await fixture.control.list(fixture.me(), { limit: 10 })).sandboxes)
      .toEqual([]);
  });

  it('makes no sandbox idle that was started, or used, after it', async () => {
    jump(by);
    const id = await create(idle);
    later(9 * MINUTE);
    await (await fixture.control.enter(fixture.me(), id)).guest.commands();
    later(9 * MINUTE);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    later(MINUTE);
    await expect.poll(() => state(id)).toBe('frozen');
  });

  it('leaves a lease as long as it was given for', async () => {
    const id = await create(idle);
    await fixture.control.lease(fixture.me(), id, { forMs: 30 * MINUTE });
    jump(by);
    later(30 * MINUTE);
    await sleep(SOME_LOOKS_MS);
    expect(await state(id)).toBe('active');
    later(10 * MINUTE);
    await expect.poll(() => state(id)).toBe('frozen');
  });
});

describe('a clock that is set forward', () => {
  it('ends sandboxes whose timeout it passes: a timeout is a time of day', async () => {
    const id = await create({ timeoutMs: HOUR, onTimeout: 'stop' });
    jump(DAY);
    fixture.control.update(fixture.me(), id, { labels: {} }).catch(() => {});
    await expect.poll(() => state(id)).toBe('stopped');
  });

  it('makes no snapshot too old', async () => {
    const retention = RetentionSchema.parse({ keepLast: null, maxAgeMs: HOUR });
    const id = await create({ retention });
    for (let turn = 0; turn < 3; turn++) await fixture.control.turn(fixture.me(), id, {});
    const kept = async () =>
      (await fixture.control.snapshots(fixture.me(), ListSnapshotsSchema.parse({ sandbox: id }))).snapshots
        .length;
    const look = async () => {
      await fixture.control.update(fixture.me(), id, { retention });
      await sleep(SOME_LOOKS_MS);
    };
    jump(DAY);
    await look();
    expect(await kept()).toBe(3);
    later(2 * HOUR);
    await look();
    // The newest always stays.
    expect(await kept()).toBe(1);
  });

  it('deletes no idempotency key and no event', async () => {
    const clock = { nowMs: 1_700_000_000_000, jumpedMs: 0 };
    const passes = (ms: number) => void (clock.nowMs += ms);
    const jumps = (ms: number) => {
      clock.nowMs += ms;
      clock.jumpedMs += ms;
    };
    const now = () => clock.nowMs;
    const ageing = () => clock.nowMs - Math.max(0, clock.jumpedMs);
    const directory = mkdtempSync(join(tmpdir(), 'cay-clock-'));
    const {
      projects,
      sandboxes,
      idempotency,
      commandKeys,
      events: log,
      ...records
    } = await openRecords({
      directory,
      now,
      ageing,
      keepEvents: { ageMs: HOUR },
    });
    const project = (await projects.create('p')).id;
    const { id } = sandboxRow(project);
    await sandboxes.insert({ ...sandboxRow(project), id });
    await idempotency.remember('p', 'old', {}, 'made');
    await commandKeys.claim(id, 'old', {}, 'cmd_1');
    jumps(30 * DAY);
    await idempotency.remember('p', 'new', {}, 'other');
    await commandKeys.claim(id, 'new', {}, 'cmd_2');
    expect(await idempotency.find('p', 'old', {})).toBe('made');
    expect((await commandKeys.claim(id, 'old', {}, 'cmd_3')).id).toBe('cmd_1');
    await log.append({ type: 'first' });
    jumps(DAY);
    await log.append({ type: 'second' });
    await log.prune();
    expect((await log.list({})).map(({ type }) => type)).toEqual(['first', 'second']);
    passes(40 * DAY);
    await log.prune();
    expect(await log.list({})).toEqual([]);
    await records.close();
    rmSync(directory, { recursive: true });
  });

  it('disables no webhook', async () => {
    const { clock, events, principal } = fixture.opened;
    const records = fixture.opened.records.webhooks;
    const webhook = {
      id: 'whk_1',
      project: principal.project,
      url: 'https://example.com/',
      types: [],
      createdAtMs: clock.nowMs,
      deliveredTo: await events.lastId(),
      attempts: 0,
      failingSinceMs: null,
      lastError: null,
      disabledAtMs: null,
    };
    await records.insert(webhook);
    let tries = 0;
    const dispatch = startDispatch({
      webhook,
      records,
      events,
      pace: { timeoutMs: 1000, firstMs: 1, longestMs: 2, giveUpMs: HOUR },
      now: () => clock.nowMs,
      ageing: () => clock.nowMs - clock.jumpedMs,
      send: async () =>
        ({ ok: false, error: 'refused', durationMs: 0, status: null, event: ++tries }) as never,
      disable: (disabled) => records.update('whk_1', disabled),
      onError: (error) => expect.unreachable(String(error)),
    });
    await create({});
    dispatch.wake();
    await expect.poll(() => tries).toBeGreaterThan(3);
    jump(DAY);
    const before = tries;
    await expect.poll(() => tries).toBeGreaterThan(before + 3);
    expect(await records.get('whk_1')).toMatchObject({ disabledAtMs: null });
    later(2 * HOUR);
    await expect.poll(async () => (await records.get('whk_1'))!.disabledAtMs).not.toBeNull();
    await dispatch.stop();
  });
});

describe('a clock that is set back', () => {
  it('gives no sandbox more time than its timeout', async () => {
    const id = await create({ timeoutMs: HOUR, onTimeout: 'stop' });
    jump(-DAY);
    const look = () => fixture.control.update(fixture.me(), id, { labels: {} });
    await look();
    await expect
      .poll(async () => (await fixture.opened.sandboxes.get(id))!.expiresAtMs)
      .toBe(fixture.opened.clock.nowMs + HOUR);
    later(HOUR - 1);
    await look();
    expect(await state(id)).toBe('active');
    later(1);
    await look();
    await expect.poll(() => state(id)).toBe('stopped');
  });
});
