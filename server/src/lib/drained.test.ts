import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { drained } from './drained.ts';

describe('drained()', () => {
  it('resolves at a drain or an end, and leaves no listener', async () => {
    const to = new Writable({ write() {} });
    for (let turn = 0; turn < 3; turn++) {
      const waiting = drained(to);
      to.emit('drain');
      await waiting;
    }
    expect([to.listenerCount('drain'), to.listenerCount('close')]).toEqual([0, 0]);
    const waiting = drained(to);
    to.destroy();
    await waiting;
    await drained(to);
    expect([to.listenerCount('drain'), to.listenerCount('close')]).toEqual([0, 0]);
  });
});
