import { describe, expect, it } from 'vitest';
import { memoryCapacity, pidsCapacity } from './capacity.ts';

describe('capacity', () => {
  it('reads what could be had, not what lies idle', () => {
    const { totalBytes, freeBytes } = memoryCapacity(
      'MemTotal:  2048 kB\nMemFree:  1 kB\nMemAvailable:  1024 kB\n',
    );
    expect(totalBytes).toBe(2048 * 1024);
    expect(freeBytes).toBe(1024 * 1024);
  });

  it('measures this machine', () => {
    const memory = memoryCapacity();
    expect(memory.totalBytes).toBeGreaterThan(0);
    expect(memory.freeBytes).toBeGreaterThan(0);
    expect(memory.freeBytes).toBeLessThanOrEqual(memory.totalBytes);
    const pids = pidsCapacity();
    expect(pids.free).toBeGreaterThan(0);
    expect(pids.free).toBeLessThan(pids.total);
  });
});
