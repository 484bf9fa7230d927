import { describe, expect, it } from 'vitest';
import { measuredBackend, memoryBackend } from '../testing/test-control.ts';
import { watchHealth } from './health.ts';
import { openPressure } from './pressure.ts';
import { openRecentErrors } from './recent-errors.ts';

async function watch({
  freeShare = 0.9,
  ping = async () => {},
  now = () => 1_000_000,
}: Partial<{ freeShare: number; ping(): Promise<void>; now(): number }>) {
  const backend = measuredBackend(memoryBackend(), async () => ({
    disk: { totalBytes: 2 ** 40, freeBytes: freeShare * 2 ** 40 },
  }));
  const onError = (error: unknown) => {
    throw error;
  };
  const pressure = await openPressure({
    backend,
    promised: async () => ({ memoryBytes: 0, diskBytes: 0 }),
    onError,
  });
  const health = watchHealth({
    backend,
    errors: openRecentErrors(now),
    pressure,
    records: { ping, sandboxes: { counts: async () => ({ active: 2 }) } as never },
    now,
  });
  const close = () => (pressure.close(), health.close());
  return { health, close };
}

describe('health', () => {
  it('is `ok` when nothing is wrong, with counts and uptime', async () => {
    let nowMs = 1_000_000;
    const { health, close } = await watch({ now: () => nowMs });
    nowMs += 5000;
    const found = await health.check();
    expect(found.checks.filter(({ name }) => name !== 'event loop').map(({ level }) => level)).toEqual([
      'ok',
      'ok',
      'ok',
      'ok',
    ]);
    expect(found).toMatchObject({ sandboxes: { active: 2 }, uptimeMs: 5000, recentErrors: [] });
    close();
  });

  it('is as bad as its worst check', async () => {
    const full = await watch({ freeShare: 0.01 });
    expect(await full.health.check()).toMatchObject({ verdict: 'critical' });
    full.close();
    const broken = await watch({
      ping: () => Promise.reject(new Error('disk I/O error')),
    });
    const { verdict, checks } = await broken.health.check();
    expect(verdict).toBe('critical');
    expect(checks).toContainEqual({ name: 'records', level: 'critical', detail: 'disk I/O error' });
    broken.close();
  });

  it('keeps the last errors, and warns of recent ones only', async () => {
    let nowMs = 1_000_000;
    const { health, close } = await watch({ now: () => nowMs });
    for (let count = 0; count < 30; count++) health.noteError(new Error(`number ${count}`));
    const worried = await health.check();
    expect(worried.recentErrors).toHaveLength(20);
    expect(worried.recentErrors.at(-1)?.message).toBe('number 29');
    expect(worried.checks.find(({ name }) => name === 'errors')?.level).toBe('warn');
    nowMs += 10 * 60_000;
    expect((await health.check()).checks.find(({ name }) => name === 'errors')?.level).toBe('ok');
    close();
  });
});
