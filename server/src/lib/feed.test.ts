import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { feed } from './feed.ts';

const broken = Object.assign(new Error('write EPIPE'), { code: 'EPIPE' });

describe('feed()', () => {
  it('writes all, and ends the stream', async () => {
    const parts: string[] = [];
    const into = new Writable({
      write: (part: Buffer, _encoding, done) => (parts.push(part.toString()), done()),
    });
    await feed(
      (async function* () {
        yield Buffer.from('a');
        yield Buffer.from('b');
      })(),
      into,
    );
    expect([parts, into.writableFinished]).toEqual([['a', 'b'], true]);
  });

  it('rejects with the failure of the stream', async () => {
    const into = new Writable({ write: (_part, _encoding, done) => done(broken) });
    await expect(
      feed(
        (async function* () {
          yield Buffer.from('a');
        })(),
        into,
      ),
    ).rejects.toBe(broken);
  });

  it('rejects with the failure of the source, also where the stream has failed too', async () => {
    const mine = new Error('a wrong digest');
    let fail: ((error: Error) => void) | undefined;
    const into = new Writable({ write: (_part, _encoding, done) => (fail = done) });
    const source = (async function* () {
      yield Buffer.from('a');
      fail!(broken);
      await new Promise((resolve) => setImmediate(resolve));
      throw mine;
    })();
    await expect(feed(source, into)).rejects.toBe(mine);
  });
});
