import type { CayEvent } from '@cay/sdk/client';
import { describe, expect, it } from 'vitest';
import { whyInactive } from './why-inactive.ts';

const event = (type: string, data: Record<string, unknown>, atMs = 0): CayEvent => ({
  id: 1,
  atMs,
  type,
  project: null,
  sandbox: null,
  key: null,
  outcome: 'ok',
  data,
});

describe('whyInactive()', () => {
  it('has the newest event that led to the state', () => {
    const events = [
      event('sandbox.paused', { cause: 'request' }, 1000),
      event('sandbox.resumed', {}, 2000),
      event('sandbox.paused', { cause: 'timeout' }, 60_000),
      event('sandbox.updated', {}, 70_000),
    ];
    expect(whyInactive('paused', events, 90_000)).toBe('30s ago, by its timeout');
  });

  it('tells the causes apart', () => {
    const why = (cause: unknown) => whyInactive('paused', [event('sandbox.paused', { cause })], 0);
    expect(why('idle')).toBe('0s ago, by its idle policy');
    expect(why('pressure')).toBe('0s ago, to make room on the machine');
    expect(why('request')).toBe('0s ago, on request');
    expect(why('a later cause')).toBe('0s ago');
  });

  it('does not know what no event says, and says nothing about other states', () => {
    expect(whyInactive('stopped', [event('sandbox.paused', { cause: 'idle' })], 0)).toBeUndefined();
    expect(whyInactive('active', [event('sandbox.resumed', {})], 0)).toBeUndefined();
  });
});
