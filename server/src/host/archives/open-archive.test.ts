import { describe, expect, it } from 'vitest';
import { keptBytes } from '../../../../test/support/kept-bytes.ts';
import { abortable } from './open-archive.ts';

describe('a source that can be given up', () => {
  it('keeps nothing of pieces that were read, however small they are', async () => {
    const COUNT = 50_000;
    async function* pieces() {
      for (let count = 0; count < COUNT; count++) yield Buffer.of(1);
    }
    const reading = abortable(pieces(), new AbortController().signal);
    let read = 0;
    const kept = await keptBytes(async () => {
      for (; read < COUNT; read++) await reading.next();
    });
    expect(kept / COUNT).toBeLessThan(100);
    await reading.return();
  });

  it('is given up also while it is silent', async () => {
    const gone = new AbortController();
    const silent = (async function* () {
      await new Promise(() => {});
      yield Buffer.of(1);
    })();
    const reading = abortable(silent, gone.signal);
    const next = reading.next();
    gone.abort(new Error('given up'));
    await expect(next).rejects.toThrow('given up');
  });
});
