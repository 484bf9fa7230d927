import { describe, expect, it } from 'vitest';
import { CayError } from '@cay/sdk/protocol';
import { encodeEvents } from './stream-answer.ts';

async function text(source: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(source)).toString();
}

async function* failing(error: unknown) {
  yield { a: 1 };
  throw error;
}

describe('encodeEvents()', () => {
  it('writes lines or events with ids', async () => {
    const values = async function* () {
      yield { n: 7, text: 'a\nb' };
    };
    expect(await text(encodeEvents(values(), 'ndjson'))).toBe('{"n":7,"text":"a\\nb"}\n');
    expect(await text(encodeEvents(values(), 'sse', { id: ({ n }) => n }))).toBe(
      'id: 7\ndata: {"n":7,"text":"a\\nb"}\n\n',
    );
  });

  it('gives a sign of life while the source is silent', async () => {
    const slow = async function* () {
      await new Promise((resolve) => setTimeout(resolve, 60));
      yield 1;
    };
    expect(await text(encodeEvents(slow(), 'ndjson', { heartbeatMs: 10 }))).toMatch(/^\n+1\n$/);
    expect(await text(encodeEvents(slow(), 'sse', { heartbeatMs: 10 }))).toMatch(
      /^(: alive\n\n)+data: 1\n\n$/,
    );
  });

  it('ends with the failure, and does not show what is ours', async () => {
    expect(await text(encodeEvents(failing(new CayError('unavailable', 'gone')), 'ndjson'))).toBe(
      '{"a":1}\n{"type":"error","error":{"code":"unavailable","message":"gone"}}\n',
    );
    const seen: unknown[] = [];
    const shown = await text(
      encodeEvents(failing(new TypeError('inner detail')), 'ndjson', {
        onError: (error) => seen.push(error),
      }),
    );
    expect(shown).toContain('"code":"internal"');
    expect(shown).not.toContain('inner detail');
    expect(seen).toHaveLength(1);
  });

  it('lets go of its source when the reader goes away', async () => {
    let released = false;
    const source = (async function* () {
      try {
        for (;;) yield 1;
      } finally {
        released = true;
      }
    })();
    for await (const _ of encodeEvents(source, 'ndjson')) break;
    await expect.poll(() => released).toBe(true);
  });
});
