import type { ExecEvent, OutputChannel } from '@cay/sdk/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { CommandHandle, OutputChunk, OutputGap } from '../../guest/guest.ts';
import { outputEvents } from './output-events.ts';

function handleOf(chunks: (OutputChunk | OutputGap)[]): CommandHandle {
  return {
    id: 'cmd',
    pid: 2,
    existing: false,
    output: (async function* () {
      yield* chunks;
    })(),
    ended: Promise.resolve({ kind: 'exited', exitCode: 0 }),
    write: async () => {},
    closeStdin: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
}

/** Cuts the bytes of two texts into chunks and mixes them. */
const mixed = fc
  .tuple(
    fc.string({ unit: 'grapheme', maxLength: 30 }),
    fc.string({ unit: 'grapheme', maxLength: 30 }),
    fc.infiniteStream(fc.tuple(fc.boolean(), fc.integer({ min: 1, max: 5 }))),
  )
  .map(([out, err, cuts]) => {
    const left = { stdout: Buffer.from(out), stderr: Buffer.from(err) };
    const chunks: OutputChunk[] = [];
    let offset = 0;
    for (const [first, length] of cuts) {
      const channel: 'stdout' | 'stderr' =
        left.stdout.length === 0 || (!first && left.stderr.length > 0) ? 'stderr' : 'stdout';
      const data = left[channel].subarray(0, length);
      if (data.length === 0) break;
      left[channel] = left[channel].subarray(data.length);
      chunks.push({ channel, offset, data });
      offset += data.length;
    }
    return { out, err, chunks };
  });

async function all(
  chunks: (OutputChunk | OutputGap)[],
  encoding: 'utf8' | 'base64',
  upTo?: number,
): Promise<ExecEvent[]> {
  return Array.fromAsync(outputEvents(handleOf(chunks), encoding, { upTo }));
}

const joined = (events: ExecEvent[], type: OutputChannel) =>
  events.map((event) => (event.type === type ? event.data : '')).join('');

describe('outputEvents()', () => {
  it('gives no more bytes than it may, and then no end', async () => {
    await fc.assert(
      fc.asyncProperty(mixed, fc.nat(80), async ({ chunks }, limitBytes) => {
        const events = await Array.fromAsync(outputEvents(handleOf(chunks), 'base64', { limitBytes }));
        const written = chunks.reduce((sum, { data }) => sum + data.length, 0);
        const given = events.reduce(
          (sum, event) => sum + ('data' in event ? Buffer.from(event.data, 'base64').length : 0),
          0,
        );
        expect(given).toBe(Math.min(written, limitBytes));
        expect(events.at(-1)?.type === 'end').toBe(limitBytes > written);
      }),
    );
  });

  it('decodes text however its bytes are cut and mixed', async () => {
    await fc.assert(
      fc.asyncProperty(mixed, async ({ out, err, chunks }) => {
        const events = await all(chunks, 'utf8');
        expect(joined(events, 'stdout')).toBe(out);
        expect(joined(events, 'stderr')).toBe(err);
        expect(events.at(-1)?.type).toBe('end');
      }),
    );
  });

  it('gives each event the offset of its first byte', async () => {
    const data = Buffer.from('a€b');
    const chunks: OutputChunk[] = [...data].map((byte, offset) => ({
      channel: 'stdout',
      offset,
      data: Uint8Array.of(byte),
    }));
    const events = (await all(chunks, 'utf8')).filter((event) => event.type === 'stdout');
    expect(events).toEqual([
      { type: 'stdout', offset: 0, data: 'a' },
      { type: 'stdout', offset: 1, data: '€' },
      { type: 'stdout', offset: 4, data: 'b' },
    ]);
  });

  it('shows what is no text, and what a gap cut off, as U+FFFD', async () => {
    const chunks: (OutputChunk | OutputGap)[] = [
      { channel: 'stdout', offset: 0, data: Uint8Array.of(0xe2, 0x82) },
      { channel: 'gap', offset: 2, bytes: 10 },
      { channel: 'stdout', offset: 12, data: Buffer.from('x') },
      { channel: 'stdout', offset: 13, data: Uint8Array.of(0xc3) },
    ];
    const events = await all(chunks, 'utf8');
    expect(events.slice(1, -1)).toEqual([
      { type: 'stdout', offset: 0, data: '\uFFFD' },
      { type: 'gap', offset: 2, bytes: 10 },
      { type: 'stdout', offset: 12, data: 'x' },
      { type: 'stdout', offset: 13, data: '\uFFFD' },
    ]);
  });

  it('keeps bytes as they are in base64', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 20 }), async (data) => {
        const events = await all([{ channel: 'pty', offset: 0, data }], 'base64');
        expect(Buffer.from(joined(events, 'pty'), 'base64')).toEqual(Buffer.from(data));
      }),
    );
  });

  it('stops at the given offset', async () => {
    const events = await all([{ channel: 'stdout', offset: 0, data: Buffer.from('abcdef') }], 'utf8', 3);
    expect(events.slice(1)).toEqual([{ type: 'stdout', offset: 0, data: 'abc' }]);
  });
});
