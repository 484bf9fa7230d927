import { isCayError } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { measuredBackend, memoryBackend } from '../testing/test-control.ts';
import type { Measuring } from '../../backends/backend.ts';
import { openPressure, type PressureSettings } from './pressure.ts';
import { openReclaim, type Candidate } from './reclaim.ts';

const GiB = 1024 ** 3;

async function platform(
  free: { memory?: number; disk?: number; pids?: number },
  settings: Partial<PressureSettings> = {},
) {
  const left = { memory: 20 * GiB, disk: 90 * GiB, pids: 30_000, ...free };
  const capacity: Measuring['capacity'] = async () => ({
    memory: { totalBytes: 24 * GiB, freeBytes: left.memory },
    disk: { totalBytes: 100 * GiB, freeBytes: left.disk },
    pids: { total: 32_768, free: left.pids },
  });
  const promised = { memoryBytes: 0, diskBytes: 0 };
  let nowMs = 1_000_000;
  const pressure = await openPressure({
    backend: measuredBackend(memoryBackend(), capacity),
    settings,
    promised: async () => promised,
    now: () => nowMs,
    onError: (error) => {
      throw error;
    },
  });
  return { pressure, left, promised, pass: (ms: number) => void (nowMs += ms) };
}

async function refusal(operation: () => void | Promise<void>): Promise<Record<string, unknown>> {
  try {
    await operation();
  } catch (error) {
    if (isCayError(error, 'resource_exhausted')) return error.details;
    throw error;
  }
  return {};
}

const small = { memoryBytes: GiB, diskBytes: GiB };

describe('admission', () => {
  it('admits sandboxes while there is room', async () => {
    const { pressure } = await platform({});
    for (let count = 0; count < 100; count++) await pressure.admit(small);
    expect(pressure.level()).toBe('ok');
    pressure.close();
  });

  it('refuses when memory, disk or processes are nearly out, with what would fit and when to retry', async () => {
    for (const [what, free] of [
      ['memory', 200 * 1024 ** 2],
      ['disk', 200 * 1024 ** 2],
      ['pids', 50],
    ] as const) {
      const { pressure } = await platform({ [what]: free });
      expect(await refusal(() => pressure.admit(small))).toMatchObject({
        resource: what,
        retryAfterMs: expect.any(Number),
        fits: expect.any(Number),
      });
      pressure.close();
    }
  });

  it('counts starting sandboxes until they show in the measurement', async () => {
    const { pressure, pass } = await platform({ memory: 2 * GiB });
    let admitted = 0;
    while (Object.keys(await refusal(() => pressure.admit(small))).length === 0) admitted++;
    expect(admitted).toBeGreaterThan(5);
    expect(admitted).toBeLessThan(60);
    pass(10_000);
    await pressure.admit(small);
    pressure.close();
  });

  it('bounds promises by the overcommit', async () => {
    const { pressure, promised } = await platform({}, { memoryOvercommit: 2 });
    promised.memoryBytes = 47 * GiB;
    await pressure.admit(small);
    expect(await refusal(() => pressure.admit({ memoryBytes: 2 * GiB, diskBytes: null }))).toMatchObject({
      resource: 'memory',
      fits: GiB,
    });
    pressure.close();
  });

  it('admits again only when there is clearly room', async () => {
    const { pressure, left } = await platform({ disk: 4 * GiB });
    expect(pressure.level()).toBe('critical');
    left.disk = 6 * GiB;
    expect(await pressure.look()).toBe('critical');
    left.disk = 10 * GiB;
    expect(await pressure.look()).toBe('warn');
    await pressure.admit(small);
    pressure.close();
  });
});

describe('what is written', () => {
  it('never takes the reserve, also with concurrent writes, and counts until it shows', async () => {
    const { pressure, left } = await platform(
      { disk: 3 * GiB },
      { diskReserveBytes: GiB, criticalShare: 0.999 },
    );
    pressure.write(GiB);
    pressure.write(GiB - 1);
    expect(await refusal(() => pressure.write(2))).toMatchObject({ resource: 'disk', fits: 1 });
    pressure.write(0);
    left.disk = 2 * GiB;
    await pressure.look();
    expect(await refusal(() => pressure.write(2))).toMatchObject({ resource: 'disk' });
    await pressure.look();
    pressure.write(GiB - 2);
    pressure.close();
  });
});

describe('making room', () => {
  const candidate = (id: string, idleMs: number, more: Partial<Candidate> = {}): Candidate => ({
    id,
    idleMs,
    share: 0,
    frozen: false,
    hibernates: true,
    ...more,
  });

  function reclaim(candidates: Candidate[], failing = new Set<string>()) {
    const operations: string[] = [];
    const operation = (verb: string) => async (id: string) => {
      if (failing.has(id)) throw new Error('busy');
      operations.push(`${verb} ${id}`);
    };
    const errors: unknown[] = [];
    const { relieve } = openReclaim({
      candidates: async () => candidates,
      freeze: operation('freeze'),
      hibernate: operation('hibernate'),
      onError: (error) => errors.push(error),
    });
    return { relieve, operations, errors };
  }

  it('freezes the longest unused first, and leaves those that were just used', async () => {
    const { relieve, operations } = reclaim([
      candidate('b', 80_000),
      candidate('a', 90_000),
      candidate('fresh', 1000),
    ]);
    await relieve('warn');
    expect(operations).toEqual(['freeze a', 'freeze b']);
  });

  it('starts with the project that takes most', async () => {
    const greedy = [
      candidate('greedy-1', 40_000, { share: 8 * GiB }),
      candidate('greedy-2', 50_000, { share: 8 * GiB }),
    ];
    const { relieve, operations } = reclaim([candidate('modest', 99_999, { share: GiB }), ...greedy]);
    await relieve('critical');
    expect(operations).toEqual(['hibernate greedy-2', 'hibernate greedy-1']);
  });

  it('hibernates at `critical`, also sandboxes that are frozen', async () => {
    const { relieve, operations } = reclaim([
      candidate('a', 99_999, { frozen: true }),
      candidate('b', 99_998, { hibernates: false }),
    ]);
    await relieve('critical');
    expect(operations).toEqual(['hibernate a', 'freeze b']);
  });

  it('goes on with the next when one cannot be paused', async () => {
    const { relieve, operations, errors } = reclaim(
      [candidate('a', 99_999), candidate('b', 99_998)],
      new Set(['a']),
    );
    expect(await relieve('warn')).toEqual(['b']);
    expect(operations).toEqual(['freeze b']);
    expect(errors).toHaveLength(1);
  });

  it('does nothing while there is room', async () => {
    const { relieve, operations } = reclaim([candidate('a', 99_999)]);
    expect(await relieve('ok')).toEqual([]);
    expect(operations).toEqual([]);
  });
});
